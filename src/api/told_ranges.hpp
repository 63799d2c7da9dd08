// SPDX-License-Identifier: Apache-2.0
//
// ToldRanges: the parts of a rank's regions that its communicators have told others of. Each is a registration of its
// own, under a tag by which it is told from those that the program has made: closing a region by its address means the
// program's, and the ranges that were told of it end with it.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include <hixl/runtime.hpp>

#include "api/deadline.hpp"

namespace hixl::api {

inline constexpr std::uint32_t k_told_tag = 0x5400'0000;

/// Thread-safe. Belongs to an engine, and goes before its runtime.
class ToldRanges {
 public:
  explicit ToldRanges(Runtime& runtime) noexcept : runtime_(runtime) {}
  /// From `address` to the end of `base`, in which it lies. Told by several, it is registered once, until all of them
  /// have forgotten it. Whoever has told something calls follow() then: `base` may have ended meanwhile.
  [[nodiscard]] Result<Region> tell(const OwnRegion& base, std::uint64_t address, const void* teller);
  /// All that it has told. Never waits.
  void forget(const void* teller);
  /// Ends what was told of those of `bases` that have ended; after success nobody touches it. Waits, so not in
  /// callbacks.
  [[nodiscard]] Result<void> follow(std::span<const RegionKey> bases, const Deadline& deadline);

 private:
  struct Told {
    RegionKey base;
    Region region;
    std::vector<const void*> tellers;
  };
  Runtime& runtime_;
  std::mutex mutex_;  // guards told_; never held while waiting
  std::vector<Told> told_;
};

}  // namespace hixl::api
