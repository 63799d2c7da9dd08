// SPDX-License-Identifier: Apache-2.0
//
// PeerActor's order of operations: what was posted before and after a fence or flush, and what waits for what.
//
// A fence is two things. Its request ends as any other does: by the end of all before it, by its deadline, by cancel.
// The order that it asked for outlives it: what was posted behind it does not begin before all that was posted before
// it has ended, whatever becomes of the request itself. (S7)
#include <algorithm>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "peer/peer_actor.hpp"

namespace hixl::peer {

bool PeerActor::held(const Operation& operation) const noexcept {
  return !HIXL_PLANTED(fence_ignored) && !fence_places_.empty() && operation.place > fence_places_.front();
}

void PeerActor::make_ready(Operation& operation) {
  if (operation.kind == Operation::Kind::atomic) return begin_atomic(operation);
  operation.small = operation.total_bytes() <= k_small_bytes;
  Ready& ready = operation.small ? small_ : bulk_;
  ready.list.push_back(operation);
  ready.count += 1;
}

/// Nothing more of it is posted.
void PeerActor::leave_ready(Operation& operation) noexcept {
  if (static_cast<ListNode<ReadyTag>&>(operation).linked()) {
    static_cast<ListNode<ReadyTag>&>(operation).unlink();
    (operation.small ? small_ : bulk_).count -= 1;
  }
  if (std::exchange(operation.waiting, false)) waiting_count_ -= 1;
}

/// A fence is here. Place 0: posted when nothing had ever been done with this rank, so there is nothing before it.
void PeerActor::keep_order(const Operation& operation) {
  if (operation.kind != Operation::Kind::fence || operation.place == 0) return;
  fence_places_.insert(std::upper_bound(fence_places_.begin(), fence_places_.end(), operation.place), operation.place);
}

/// Before anything is posted or an order ends: everything that was posted before it is here.
void PeerActor::settle_order() {
  if (!arrivals_.due()) return;
  arrivals_.settle();
  release_waiting();
}

/// What no fence is before any more may begin.
void PeerActor::release_waiting() {
  for (Operation* operation = open_.front(); operation != nullptr && waiting_count_ > 0 && !held(*operation);
       operation = open_.next(*operation)) {
    if (!std::exchange(operation->waiting, false)) continue;
    waiting_count_ -= 1;
    make_ready(*operation);
  }
}

/// A fence or flush ends when it has become the oldest open operation; a fence then lets go of those behind it. One
/// that a callback posts meanwhile has to be settled first.
void PeerActor::finish_orders() {
  for (Operation* front = open_.front(); front != nullptr && front->is_order(); front = open_.front()) {
    if (arrivals_.due()) return pump_later();
    finish(*front);
  }
  bool passed = false;
  while (!fence_places_.empty() && (open_.front() == nullptr || open_.front()->place > fence_places_.front())) {
    fence_places_.pop_front();
    memory_.gate.end_order();
    passed = true;
  }
  if (!passed) return;
  release_waiting();
  pump_later();
}

}  // namespace hixl::peer
