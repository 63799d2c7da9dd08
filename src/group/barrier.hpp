// SPDX-License-Identifier: Apache-2.0
//
// BarrierActor: every member tells every other that it has entered barrier n of the group; who has heard from all
// leaves. O(members²) small messages, no root to lose, and everybody can name who is missing. Repeats every 200 ms to
// those not heard from; whoever has entered answers a repeat. A life that has not completed any barrier of a group
// adopts the number that the others are at.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <hixl/result.hpp>

#include "peer/address_book.hpp"
#include "runtime/loop.hpp"
#include "wire/messages.hpp"

namespace hixl::group {

/// Loop-bound.
class BarrierActor {
 public:
  BarrierActor(runtime::Loop& loop, peer::ControlPlane& control, Rank self);
  ~BarrierActor();

  struct Entry {
    std::vector<Rank> ranks;  ///< any order; must hold self and no duplicates (INVALID_ARGUMENT)
    Instant deadline;
    void (*done)(void* context, const Result<void>& result);  ///< once, never inline
    void* context;
  };
  /// DEADLINE_EXCEEDED with the missing ranks in the detail, PEER_LOST with the dead one. Two entries of one group at
  /// once: the second waits for the first.
  void enter(Entry entry);
  void on_barrier(Rank from, const wire::Barrier& message);
  /// A member's life has ended: barriers waiting for it end with PEER_LOST.
  void on_peer_down(Rank rank);
  /// Ends all with STOPPED.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hixl::group
