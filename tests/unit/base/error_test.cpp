// SPDX-License-Identifier: Apache-2.0
//
// The list of error codes and the text of an error.
#include <doctest/doctest.h>

#include <cerrno>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <hixl/result.hpp>
#include <hixl/types.hpp>

using namespace hixl;

namespace {

const std::vector<ErrorCode>& every_code() {
  static const std::vector<ErrorCode> codes{
#define HIXL_CODE(id, number, kind, what, remedy) ErrorCode::id,
      HIXL_ERROR_CODES(HIXL_CODE)
#undef HIXL_CODE
  };
  return codes;
}

std::string text(ErrorCode code, const ErrorDetail& detail) { return Error(code, detail).message(); }

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("every code has a number and a name of its own, a sentence and a remedy") {
  std::set<std::uint16_t> numbers;
  std::set<std::string_view> names;
  for (const ErrorCode code : every_code()) {
    CAPTURE(name(code));
    CHECK(numbers.insert(static_cast<std::uint16_t>(code)).second);
    CHECK(names.insert(name(code)).second);
    CHECK(!what(code).empty());
    CHECK(!remedy(code).empty());
    CHECK(name(code).find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == std::string_view::npos);
    const std::string message = Error(code).message();
    CHECK(message.starts_with(name(code)));
    CHECK(has(message, what(code)));
    CHECK(message.ends_with(remedy(code)));
  }
}

TEST_CASE("names and kinds are the documented ones") {
  CHECK(name(ErrorCode::peer_lost) == "PEER_LOST");
  CHECK(name(ErrorCode::ok) == "OK");
  CHECK(kind(ErrorCode::ok) == ErrorKind::none);
  CHECK(kind(ErrorCode::busy) == ErrorKind::retry_later);
  CHECK(kind(ErrorCode::stale) == ErrorKind::reconnect);
  CHECK(kind(ErrorCode::no_memory) == ErrorKind::give_up);
  CHECK(kind(ErrorCode::not_registered) == ErrorKind::fix_call);
  CHECK(Error(ErrorCode::outcome_unknown).kind() == ErrorKind::outcome_unknown);
}

TEST_CASE("a number that is no code says so, and says which") {
  for (const std::uint16_t number : {2, 91, 0xffff}) {
    const auto code = static_cast<ErrorCode>(number);
    CHECK(name(code) == "UNKNOWN");
    CHECK(!what(code).empty());
    CHECK(!remedy(code).empty());
    CHECK(kind(code) == ErrorKind::give_up);
    CHECK(has(Error(code).message(), "UNKNOWN " + std::to_string(number) + ":"));
  }
}

TEST_CASE("message: nothing but what applies") {
  CHECK(Error(ErrorCode::busy).message() == "BUSY: no free slot or credit; let some operations end, then post again");
}

TEST_CASE("message: every field that applies") {
  ErrorDetail detail;
  detail.rank = 7;
  detail.link = 2;
  detail.stage = Stage::remote_check;
  detail.os_error = ECONNREFUSED;
  detail.address = 0x7f0000001000;
  detail.length = 4096;
  detail.nearest_base = 0x7f0000000000;
  detail.nearest_length = 512;
  detail.limit = 99;
  CHECK(text(ErrorCode::not_registered, detail) ==
        "NOT_REGISTERED: the address is not in any registered region (rank 7, link 2, stage remote check, "
        "address 0x7f0000001000 + 0x1000 (4096 bytes), nearest region 0x7f0000000000 + 0x200 (512 bytes), limit 99, "
        "errno 111 (Connection refused)); register the memory, or allocate() it, before using it");
  // Rank 0 is a rank.
  CHECK(has(text(ErrorCode::peer_lost, {.rank = 0}), "(rank 0)"));
  CHECK(has(text(ErrorCode::malformed_frame, {.length = 70'000, .limit = 65'536}), "(length 70000, limit 65536)"));
  CHECK(has(text(ErrorCode::version_mismatch, {.length = 2, .limit = 1}), "(version 2 there, 1 here)"));
  CHECK(has(text(ErrorCode::wrong_peer, {.length = 0xb, .limit = 0xa}), "(life a expected, b found)"));
  CHECK(has(text(ErrorCode::host_unresolved, {.os_error = -3008}), "(status -3008)"));
  CHECK(has(text(ErrorCode::os_error, {.os_error = 123'456}), "errno 123456 ("));
}

TEST_CASE("message: the remedy is for the limit that was met, where the system's number tells which") {
  const auto remedy_in = [](ErrorCode code, int number, std::uint64_t limit) {
    const std::string all = text(code, {.os_error = number, .limit = limit});
    return all.substr(all.rfind("; ") + 2);
  };
  CHECK(remedy_in(ErrorCode::no_memory, 0, 7) == remedy(ErrorCode::no_memory));
  CHECK(has(remedy_in(ErrorCode::no_memory, ENOMEM, 7), "(ulimit -v)"));
  CHECK(has(remedy_in(ErrorCode::no_memory, ENOMEM, 0), "vm.max_map_count"));
  CHECK(remedy_in(ErrorCode::limit_reached, 0, 7) == remedy(ErrorCode::limit_reached));
  CHECK(has(remedy_in(ErrorCode::limit_reached, EFBIG, 7), "(ulimit -f)"));
  CHECK(remedy_in(ErrorCode::fd_limit, EMFILE, 0) == remedy(ErrorCode::fd_limit));
  CHECK(has(remedy_in(ErrorCode::fd_limit, ENFILE, 0), "fs.file-max"));
}

TEST_CASE("message: missing ranks") {
  const auto missing = [](std::uint32_t count) {
    ErrorDetail detail;
    detail.missing_count = count;
    detail.missing = {3, 5, 6, 7, 8, 9, 10, 11};
    return text(ErrorCode::deadline_exceeded, detail);
  };
  CHECK(has(missing(1), "(missing rank 3)"));
  CHECK(has(missing(2), "(missing ranks 3 and 5)"));
  CHECK(has(missing(3), "(missing ranks 3, 5 and 6)"));
  CHECK(has(missing(8), "(missing ranks 3, 5, 6, 7, 8, 9, 10 and 11)"));
  CHECK(has(missing(9), "(missing ranks 3, 5, 6, 7, 8, 9, 10, 11 and 1 more)"));
  CHECK(has(missing(65'535), "11 and 65527 more)"));
}

TEST_CASE("link kinds: names, and emulations say that they are") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < k_link_kinds; ++i) {
    const auto link = static_cast<LinkKind>(i);
    CHECK(names.insert(name(link)).second);
    CHECK(description(link).starts_with(name(link)));
  }
  CHECK(description(LinkKind::hccs) == "hccs (emulated: shared memory)");
  CHECK(description(LinkKind::pcie) == "pcie (emulated: cross-memory attach)");
  CHECK(name(static_cast<LinkKind>(k_link_kinds)) == "unknown");
  CHECK(description(static_cast<LinkKind>(255)) == "unknown");
}
