// SPDX-License-Identifier: Apache-2.0
#include "peer/dial_slots.hpp"

#include "base/assert.hpp"

namespace hixl::peer {

DialSlots::Slot DialSlots::take(Waiter& waiter, Haste haste) {
  Line& line = haste == Haste::lease_runs ? hasty_ : waiting_;
  const bool in_front = turn_ == &waiter;
  if (in_front) turn_ = nullptr;  // good for one
  if (any_free(haste) && (in_front || line.empty())) {
    taken_ += 1;
    return Slot(this);
  }
  // One that has become hasty meanwhile changes the line; one that is no longer hasty may keep its better place.
  if (haste == Haste::lease_runs) waiter.unlink();
  if (!waiter.linked()) line.push_back(waiter);
  return {};
}

void DialSlots::run() {
  serve(hasty_, Haste::lease_runs);
  serve(waiting_, Haste::none);
}

/// Who takes a slot and wants another goes to the end of the line, so this ends with the slots or with the line.
void DialSlots::serve(Line& line, Haste haste) {
  while (any_free(haste)) {
    turn_ = line.pop_front();
    if (turn_ == nullptr) return;
    turn_->on_dial_turn();
    turn_ = nullptr;
  }
}

void DialSlots::give_back() {
  HIXL_ASSERT(taken_ > 0);
  taken_ -= 1;
  loop_.defer(*this);
}

}  // namespace hixl::peer
