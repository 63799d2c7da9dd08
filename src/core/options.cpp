// SPDX-License-Identifier: Apache-2.0
//
// hixl::RuntimeOptions: ranges, and the environment that launchers set.
#include <hixl/options.hpp>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/log.hpp"

namespace hixl {

namespace {

/// Names the option in the log; the error carries its value and limit.
Result<void> outside(const char* option, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  log::error("option {} is {}; it must be {} to {}", option, value, low, high);
  return fail(ErrorCode::invalid_argument,
              {.stage = Stage::options, .length = value, .limit = value < low ? low : high});
}

Result<std::uint32_t> number(const char* variable, std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    log::error("{}=\"{}\" is not a number", variable, text);
    return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
  }
  return value;
}

Result<std::vector<LinkKind>> kinds(std::string_view text) {
  std::vector<LinkKind> found;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    if (word == "auto" || word.empty()) continue;
    bool known = false;
    for (std::size_t i = 0; i < k_link_kinds; ++i) {
      const auto kind = static_cast<LinkKind>(i);
      if (word != name(kind)) continue;
      found.push_back(kind);
      known = true;
    }
    if (!known) {
      log::error("HIXL_LINKS names \"{}\"; the kinds are hccs, pcie, roce, ub, tcp, or auto", word);
      return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
    }
  }
  return found;
}

Result<bool> flag(const char* variable, std::string_view text) {
  if (text == "1" || text == "true") return true;
  if (text == "0" || text == "false" || text.empty()) return false;
  log::error("{}=\"{}\" is neither 0 nor 1", variable, text);
  return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
}

}  // namespace

Result<void> RuntimeOptions::validate() const {
  struct Range {
    const char* option;
    std::uint64_t value, low, high;
  };
  const auto ms = [](std::chrono::milliseconds time) { return static_cast<std::uint64_t>(time.count()); };
  const Range ranges[] = {
      {"world_size", world_size, 1, 65536},
      {"tx_depth", tx_depth, 1, 1024},
      {"rx_depth", rx_depth, 1, 1024},
      {"max_inline", max_inline, 0, 256},
      {"chunk_bytes", chunk_bytes, 4U << 10U, 4U << 20U},
      {"requests_max", requests_max, 2, 131072},
      {"regions_max", regions_max, 1, 1U << 20U},
      {"peers_max", peers_max, 1, 65536},
      {"default_timeout (ms)", ms(default_timeout), 1, 3'600'000},
      {"connect_timeout (ms)", ms(connect_timeout), 10, 600'000},
      {"lease (ms)", lease.count() == 0 ? 500 : ms(lease), 500, 60'000},
      {"spin_us", spin_us, 0, 10'000},
      {"copy_engines", copy_engines, 1, 8},
  };
  for (const Range& range : ranges) {
    if (range.value < range.low || range.value > range.high) {
      return outside(range.option, range.value, range.low, range.high);
    }
  }
  if (rank >= world_size) {
    return fail(ErrorCode::rank_out_of_range, {.rank = rank, .stage = Stage::options, .limit = world_size});
  }
  if (store.empty() && (world_size > 1 || host_store)) {
    log::error("a world of {} ranks needs a rendezvous store: set options.store or HIXL_STORE", world_size);
    return fail(ErrorCode::invalid_argument, {.rank = rank, .stage = Stage::rendezvous});
  }
  if (bind.empty()) return fail(ErrorCode::invalid_argument, {.rank = rank, .stage = Stage::bind});
  return {};
}

Result<RuntimeOptions> RuntimeOptions::from_environment() {
  RuntimeOptions options;
  const auto get = [](const char* variable) -> const char* {
    const char* text = std::getenv(variable);
    return text != nullptr && *text != '\0' ? text : nullptr;
  };
  if (const char* text = get("HIXL_RANK")) {
    const auto value = number("HIXL_RANK", text);
    if (!value) return fail(value.error());
    options.rank = *value;
  }
  if (const char* text = get("HIXL_WORLD_SIZE")) {
    const auto value = number("HIXL_WORLD_SIZE", text);
    if (!value) return fail(value.error());
    options.world_size = *value;
  }
  if (const char* text = get("HIXL_LINKS")) {
    auto value = kinds(text);
    if (!value) return fail(value.error());
    options.links = std::move(*value);
  }
  if (const char* text = get("HIXL_INSECURE")) {
    const auto value = flag("HIXL_INSECURE", text);
    if (!value) return fail(value.error());
    options.insecure = *value;
  }
  if (const char* text = get("HIXL_POLL")) {
    const std::string_view mode = text;
    if (mode == "adaptive") {
      options.poll = PollMode::adaptive;
    } else if (mode == "busy") {
      options.poll = PollMode::busy;
    } else if (mode == "event") {
      options.poll = PollMode::event;
    } else {
      log::error("HIXL_POLL=\"{}\"; the modes are adaptive, busy and event", mode);
      return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
    }
  }
  if (const char* text = get("HIXL_STORE")) options.store = text;
  if (const char* text = get("HIXL_BIND")) options.bind = text;
  if (const char* text = get("HIXL_ADVERTISE")) options.advertise = text;
  return options;
}

}  // namespace hixl
