// SPDX-License-Identifier: Apache-2.0
//
// PeerMemory: what callers' threads may touch of a peer: the regions known of it, the gate to its lane, and the order
// of what is posted to it. A table by rank gives it out without a lock; entries are made by the loop, never move, and
// stay until the table ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <hixl/types.hpp>

#include "memory/lane_gate.hpp"
#include "memory/posting_order.hpp"
#include "memory/remote_table.hpp"

namespace hixl::memory {

struct PeerMemory {
  explicit PeerMemory(std::uint32_t regions_max) : remotes(regions_max) {}
  RemoteTable remotes;
  LaneGate gate;
  PostingOrder order;
};

class PeerMemoryTable {
 public:
  PeerMemoryTable(std::uint32_t ranks, std::uint32_t regions_max)
      : ranks_(ranks), regions_max_(regions_max), by_rank_(std::make_unique<std::atomic<PeerMemory*>[]>(ranks)) {}

  /// Any thread. Null while nothing was ever done with that rank, and for ranks out of range.
  [[nodiscard]] PeerMemory* find(Rank rank) const noexcept {
    return rank < ranks_ ? by_rank_[rank].load(std::memory_order_acquire) : nullptr;
  }
  /// Loop, once a rank below the count.
  PeerMemory& make(Rank rank) {
    owned_.push_back(std::make_unique<PeerMemory>(regions_max_));
    by_rank_[rank].store(owned_.back().get(), std::memory_order_release);
    return *owned_.back();
  }

 private:
  const std::uint32_t ranks_;
  const std::uint32_t regions_max_;
  std::unique_ptr<std::atomic<PeerMemory*>[]> by_rank_;
  std::vector<std::unique_ptr<PeerMemory>> owned_;
};

}  // namespace hixl::memory
