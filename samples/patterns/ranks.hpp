// SPDX-License-Identifier: Apache-2.0
//
// What the programs of this folder share: a rank as the launcher describes it, everybody's memory, and an end with the
// reason when something fails.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <hixl/runtime.hpp>

template <class T>
T need(hixl::Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().message().c_str());
  std::exit(1);
}
inline void need(const hixl::Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "%s\n", result.error().message().c_str());
  std::exit(1);
}

inline std::unique_ptr<hixl::Runtime> start(std::uint32_t ranks_min = 1, std::uint32_t ranks_max = 4096) {
  auto options = need(hixl::RuntimeOptions::from_environment());
  if (options.world_size < ranks_min || options.world_size > ranks_max) {
    std::fprintf(stderr, "%u ranks; this program takes %u to %u\n", options.world_size, ranks_min, ranks_max);
    std::exit(1);
  }
  return need(hixl::Runtime::create(options));
}

/// Memory of `bytes` here, and that of every rank, by rank; all ranks call it in the same order.
struct Shared {
  Shared(hixl::Runtime& runtime, std::size_t bytes) : mine(need(runtime.allocate(bytes))) {
    std::vector<hixl::Rank> ranks(runtime.world_size());
    std::iota(ranks.begin(), ranks.end(), hixl::Rank{0});
    for (auto& answer : runtime.exchange({&mine, 1}, ranks)) {
      need(answer.result);
      of.push_back(answer.regions.front());
    }
  }
  /// The i-th 8-byte word here.
  [[nodiscard]] std::uint64_t* word(std::size_t i) const { return reinterpret_cast<std::uint64_t*>(mine.data) + i; }
  /// The i-th word of a rank.
  [[nodiscard]] hixl::RemoteAddress word_of(hixl::Rank rank, std::size_t i) const { return of[rank].at(i * 8); }

  hixl::Region mine;
  std::vector<hixl::RemoteRegion> of;
};
