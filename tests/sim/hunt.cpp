// SPDX-License-Identifier: Apache-2.0
#include "hunt.hpp"

#include <fmt/core.h>

#include <sstream>

namespace hixl::sim {

namespace {

constexpr const char* k_begins = "begins";
constexpr const char* k_found = "found";
constexpr const char* k_over = "over";

}  // namespace

void hunt(const Hunt& hunt, const Told& tell, const std::function<Report(std::uint64_t)>& run) {
  for (std::uint64_t i = 0; i < hunt.count; ++i) {
    const std::uint64_t seed = hunt.first + i * hunt.step;
    tell(fmt::format("{} {}\n", k_begins, seed));
    const Report report = run(seed);
    if (!report.violation || (!hunt.wanted.empty() && report.violation->invariant != hunt.wanted)) continue;
    return tell(
        fmt::format("{} {} {} {}\n", k_found, report.events, report.violation->invariant, report.violation->text));
  }
  tell(fmt::format("{}\n", k_over));
}

Catch understand(const Outcome& outcome) {
  Catch found;
  std::istringstream lines(outcome.told);
  bool ended = false;
  for (std::string word; lines >> word;) {
    if (word == k_begins) lines >> found.seed;
    if (word == k_over) ended = true;
    if (word != k_found) continue;
    ended = true;
    lines >> found.events >> found.invariant;
    std::getline(lines >> std::ws, found.text);
  }
  if (!ended && found.seed != 0) found.invariant = k_assertion;
  return found;
}

}  // namespace hixl::sim
