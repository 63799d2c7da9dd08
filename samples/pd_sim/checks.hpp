// SPDX-License-Identifier: Apache-2.0
//
// Checks of numbers and names on a command line. CLI11's own Range lets nan pass, takes "" for 0 and wraps -1 to a
// large number, so every number option has one of these. src/cli has the same: samples see include/ only.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace pd {

template <class Number>
[[nodiscard]] CLI::Validator number_in(Number low, Number high, const char* kind) {
  const std::string range = fmt::format("{} from {} to {}", kind, low, high);
  return CLI::Validator(
      [low, high, range](std::string& text) {
        Number value{};
        const char* const last = text.data() + text.size();
        const auto [end, error] = std::from_chars(text.data(), last, value);
        const bool good = error == std::errc{} && end == last && value >= low && value <= high;  // nan is in no range
        return good ? std::string() : fmt::format("\"{:.40}\" is not {}", text, range);
      },
      "[" + fmt::format("{} - {}", low, high) + "]");
}

/// A finite number, such as 0.5 or 1e3, with nothing behind it.
[[nodiscard]] inline CLI::Validator real(double low, double high) { return number_in(low, high, "a number"); }
/// Decimal digits alone.
[[nodiscard]] inline CLI::Validator whole(std::uint64_t low, std::uint64_t high) {
  return number_in(low, high, "a whole number");
}
[[nodiscard]] inline CLI::Validator any_seed() { return whole(0, std::numeric_limits<std::uint64_t>::max()); }
/// Not empty.
[[nodiscard]] inline CLI::Validator named() {
  return CLI::Validator([](const std::string& text) { return std::string(text.empty() ? "the name is empty" : ""); },
                        "NAME");
}

}  // namespace pd
