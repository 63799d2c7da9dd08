// SPDX-License-Identifier: Apache-2.0
//
// Totals: what many seeds came to. Plain numbers, so that a child process can hand them over as they are.
#pragma once

#include <cstdint>

#include "cluster.hpp"

namespace hixl::sim {

struct Totals {
  std::uint64_t seeds = 0;
  std::uint64_t events = 0;
  std::uint64_t operations = 0;
  std::uint64_t violations = 0;
  std::uint64_t unequal = 0;
  Duration simulated{};
  RareCounts rare{};
  RareCounts seeds_with{};

  void add(const Report& report) {
    seeds += 1;
    events += report.events;
    operations += report.operations;
    simulated += report.simulated;
    for (std::size_t i = 0; i < k_rare_count; ++i) {
      rare.counts[i] += report.rare.counts[i];
      seeds_with.counts[i] += report.rare.counts[i] > 0 ? 1 : 0;
    }
  }
  void add(const Totals& other) {
    seeds += other.seeds;
    events += other.events;
    operations += other.operations;
    violations += other.violations;
    unequal += other.unequal;
    simulated += other.simulated;
    for (std::size_t i = 0; i < k_rare_count; ++i) {
      rare.counts[i] += other.rare.counts[i];
      seeds_with.counts[i] += other.seeds_with.counts[i];
    }
  }
};

}  // namespace hixl::sim
