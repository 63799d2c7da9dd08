// SPDX-License-Identifier: Apache-2.0
//
// Checks of numbers and hosts on a command line. CLI11's own Range lets nan pass, takes "" for 0 and wraps -1 to a
// large number, so every number option has one of these. samples/pd_sim has the same, because samples see include/
// only.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace hixl::cli {

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

/// For transform(): a name or an address; an IPv6 address may have its brackets. "host:port" is refused.
[[nodiscard]] inline CLI::Validator host_alone() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (text.empty()) return "the host is empty";
        const auto colons = std::ranges::count(text, ':');
        if (text.front() == '[' && text.back() == ']' && colons > 1) {
          text = text.substr(1, text.size() - 2);
        } else if (text.front() == '[' || colons == 1) {
          return fmt::format("\"{:.100}\" is more than a host: the port is said by --port N", text);
        }
        return {};
      },
      "HOST");
}

}  // namespace hixl::cli
