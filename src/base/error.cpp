// SPDX-License-Identifier: Apache-2.0
//
// The text of an error: made from the list of codes and the plain numbers only when somebody asks for it.
#include <hixl/error.hpp>

#include <hixl/kv/layout.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

namespace hixl {
namespace {

/// "peer_lost" to "PEER_LOST" while compiling, so that the list spells each code once.
template <std::size_t Size>
struct UpperText {
  char characters[Size]{};
  consteval explicit UpperText(const char (&text)[Size]) {
    for (std::size_t i = 0; i < Size; ++i) {
      const bool lower = text[i] >= 'a' && text[i] <= 'z';
      characters[i] = lower ? static_cast<char>(text[i] - 'a' + 'A') : text[i];
    }
  }
};

struct CodeEntry {
  std::string_view name;
  std::string_view what;
  std::string_view remedy;
  ErrorKind kind;
};

CodeEntry entry(ErrorCode code) noexcept {
  switch (code) {
#define HIXL_CODE(id, number, kind_of, what_text, remedy_text)             \
  case ErrorCode::id: {                                                    \
    static constexpr UpperText upper(#id);                                 \
    return {upper.characters, what_text, remedy_text, ErrorKind::kind_of}; \
  }
    HIXL_ERROR_CODES(HIXL_CODE)
#undef HIXL_CODE
  }
  // A number from a peer or a file that this version does not know. Nothing can be promised about it.
  return {"UNKNOWN", "an error that this version does not know", "compare the versions of both sides",
          ErrorKind::give_up};
}

std::string_view stage_name(Stage stage) noexcept {
  switch (stage) {
    case Stage::none:
      return "none";
    case Stage::options:
      return "options";
    case Stage::resolve:
      return "resolve";
    case Stage::connect:
      return "connect";
    case Stage::handshake:
      return "handshake";
    case Stage::rendezvous:
      return "rendezvous";
    case Stage::exchange:
      return "exchange";
    case Stage::local_check:
      return "local check";
    case Stage::remote_check:
      return "remote check";
    case Stage::transfer:
      return "transfer";
    case Stage::fence:
      return "fence";
    case Stage::memory:
      return "memory";
    case Stage::barrier:
      return "barrier";
    case Stage::bind:
      return "bind";
    case Stage::shutdown:
      return "shutdown";
    case Stage::group:
      return "group";
    case Stage::kv:
      return "kv";
  }
  return "unknown";
}

/// "missing rank 3", "missing ranks 3 and 5", "missing ranks 3, 5 and 2 more".
std::string missing_text(const ErrorDetail& detail) {
  const std::size_t listed = std::min<std::size_t>(detail.missing_count, detail.missing.size());
  const std::size_t unlisted = detail.missing_count - listed;
  std::string text = detail.missing_count == 1 ? "missing rank " : "missing ranks ";
  for (std::size_t i = 0; i < listed; ++i) {
    const bool last = i + 1 == listed && unlisted == 0;
    if (i > 0) text += last ? " and " : ", ";
    fmt::format_to(std::back_inserter(text), "{}", detail.missing[i]);
  }
  if (unlisted > 0) fmt::format_to(std::back_inserter(text), " and {} more", unlisted);
  return text;
}

/// One side of LAYOUT_MISMATCH: which of the model's layers and heads it has only where it has not all.
std::string layout_words_text(std::uint64_t shape, std::uint64_t place) {
  const kv::Shape side = kv::unpack({.shape = shape, .place = place});
  std::string text = kv::to_text(side.layout);
  if (side.shard.layers_total > side.layout.layers) {
    fmt::format_to(std::back_inserter(text), ", of a model of {} layers", side.shard.layers_total);
  }
  if (side.shard.heads_total > side.layout.kv_heads) {
    fmt::format_to(std::back_inserter(text), ", heads {} to {} of {}", side.shard.heads_first,
                   side.shard.heads_first + side.layout.kv_heads - 1, side.shard.heads_total);
  }
  return text;
}

/// The fields that apply, one text each, separated by commas.
class DetailText {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (!text_.empty()) text_ += ", ";
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

void add_os_error(DetailText& text, std::int32_t number) {
  if (number < 0) {  // Not an errno: a resolver's or a device's own number.
    text.add("status {}", number);
    return;
  }
  char buffer[128] = {};  // The longest message of glibc 2.36 has 50 characters.
  text.add("errno {} ({})", number, strerror_r(number, buffer, sizeof buffer));
}

/// "10.0.0.1:80" or "[::1]:80".
std::string socket_text(const ErrorDetail& detail) {
  in6_addr address{};
  std::copy(detail.host.begin(), detail.host.end(), address.s6_addr);
  char text[INET6_ADDRSTRLEN] = {};
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof text);
    return fmt::format("{}:{}", text, detail.port);
  }
  inet_ntop(AF_INET6, &address, text, sizeof text);
  return fmt::format("[{}]:{}", text, detail.port);
}

std::string detail_text(ErrorCode code, const ErrorDetail& detail) {
  DetailText text;
  if (detail.rank != k_no_rank) text.add("rank {}", detail.rank);
  if (detail.link != 0) text.add("link {}", detail.link);
  if (detail.stage != Stage::none) text.add("stage {}", stage_name(detail.stage));
  if (detail.entry != k_no_entry) text.add("entry {}", detail.entry);
  if (code == ErrorCode::version_mismatch) {
    text.add("version {} there, {} here", detail.length, detail.limit);
  } else if (code == ErrorCode::payload_corrupt) {
    text.add("address {:#x} + {:#x} ({} bytes)", detail.address, detail.length, detail.length);
    text.add("offset {} of the peer's region", detail.limit);
  } else if (code == ErrorCode::layout_mismatch) {
    text.add("here: {}", layout_words_text(detail.address, detail.length));
    text.add("there: {}", layout_words_text(detail.nearest_base, detail.nearest_length));
  } else if (code == ErrorCode::wrong_peer && detail.limit != 0) {
    text.add("life {:x} expected, {:x} found", detail.limit, detail.length);
  } else {
    if (detail.address != 0) {
      text.add("address {:#x} + {:#x} ({} bytes)", detail.address, detail.length, detail.length);
    } else if (detail.length != 0) {
      text.add("length {}", detail.length);
    }
    if (detail.nearest_base != 0 || detail.nearest_length != 0) {
      text.add("nearest region {:#x} + {:#x} ({} bytes)", detail.nearest_base, detail.nearest_length,
               detail.nearest_length);
    }
    if (detail.limit != 0) text.add("limit {}", detail.limit);
  }
  const bool has_host = std::any_of(detail.host.begin(), detail.host.end(), [](auto byte) { return byte != 0; });
  if (detail.port != 0 || has_host) text.add("at {}", socket_text(detail));
  if (detail.os_error != 0) add_os_error(text, detail.os_error);
  if (detail.missing_count != 0) text.add("{}", missing_text(detail));
  return text.text();
}

/// The list has one remedy for each code. Where the system's own number tells which limit was met, it is named.
std::string_view remedy_of(const Error& error) noexcept {
  const std::int32_t number = error.detail.os_error;
  // Free memory is looked at before the system is asked, so what is short is something else.
  if (error.code == ErrorCode::no_memory && number == ENOMEM) {
    return error.detail.limit != 0
               ? "raise the limit of address space (ulimit -v), or ask for less"
               : "raise what limits the process (ulimit -v, ulimit -d, vm.max_map_count), or ask for less";
  }
  if (error.code == ErrorCode::limit_reached && number == EFBIG) return "raise the limit of file size (ulimit -f)";
  if (error.code == ErrorCode::fd_limit && number == ENFILE) return "raise fs.file-max: the whole system has no more";
  return remedy(error.code);
}

}  // namespace

std::string_view name(ErrorCode code) noexcept { return entry(code).name; }
std::string_view what(ErrorCode code) noexcept { return entry(code).what; }
std::string_view remedy(ErrorCode code) noexcept { return entry(code).remedy; }
ErrorKind kind(ErrorCode code) noexcept { return entry(code).kind; }

ErrorKind Error::kind() const noexcept { return hixl::kind(code); }

std::string Error::message() const {
  const CodeEntry known = entry(code);
  const std::string fields = detail_text(code, detail);
  std::string text(known.name);
  // The number is what the other version's documentation can be searched for.
  if (known.name == "UNKNOWN") text += fmt::format(" {}", static_cast<std::uint16_t>(code));
  text += fmt::format(": {}", known.what);
  if (!fields.empty()) text += fmt::format(" ({})", fields);
  text += fmt::format("; {}", remedy_of(*this));
  return text;
}

}  // namespace hixl
