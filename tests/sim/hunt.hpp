// SPDX-License-Identifier: Apache-2.0
//
// Hunting in child processes: runs that may end in an assertion, which then counts as what they found.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "children.hpp"
#include "cluster.hpp"

namespace hixl::sim {

struct Catch {
  std::uint64_t seed = 0;  ///< of the last run
  std::uint64_t events = 0;
  std::string invariant{};  ///< empty: nothing was found
  std::string text{};
};
inline constexpr const char* k_assertion = "assertion";

/// In a child: runs `run(seed)` for `count` seeds from `first` in steps of `step` until one gives a violation, of
/// `wanted` unless that is empty. Tells each seed before it begins, so that the parent knows who killed the child.
struct Hunt {
  std::uint64_t first = 1;
  std::uint64_t step = 1;
  std::uint64_t count = 1;
  std::string wanted{};
};
void hunt(const Hunt& hunt, const Told& tell, const std::function<Report(std::uint64_t)>& run);
/// In the parent.
[[nodiscard]] Catch understand(const Outcome& outcome);

}  // namespace hixl::sim
