// SPDX-License-Identifier: Apache-2.0
//
// Barriers of a made group whose members all have its page. The first barrier goes by messages, and its release says
// whether the page is used from then on, so that all agree. Threads that wait do it themselves, on the page; calls
// without a thread are here. The collector still tells who is lost, which for a made group is for good.
#include <algorithm>

#include "group/ask_pause.hpp"
#include "group/barrier_group.hpp"

namespace hixl::group {

namespace {

using namespace std::chrono_literals;
using memory::BarrierPage;

/// Between two tries for the turn, which a thread of this program holds.
constexpr Duration k_turn_pause = 1ms;

}  // namespace

void BarrierGroup::begin_paged() {
  if (!page_->take_turn()) {
    place_.loop.start_after(*this, k_turn_pause);
    return;
  }
  has_turn_ = true;
  if (page_->enter(BarrierPage::Wake::by_message)) tell_released();
  place_.loop.start_after(*this, k_ask_pause);
  check_page();
}

/// Leaves if everybody has entered, or if somebody never will.
void BarrierGroup::check_page() {
  if (!has_turn_ || calls_.empty()) return;
  switch (page_->look()) {
    case BarrierPage::State::waiting:
      return;
    case BarrierPage::State::released:
      return end_first({});
    case BarrierPage::State::broken:
      return end_first(fail(page_->error()));
  }
}

void BarrierGroup::on_timer_paged() {
  if (!has_turn_) return begin_paged();
  const Duration left = calls_.front().call.deadline - place_.loop.now();
  place_.loop.start_after(*this, ask_pause(left));
  ask();
  check_page();
}

void BarrierGroup::give_turn() {
  if (!has_turn_) return;
  has_turn_ = false;
  page_->leave();
}

void BarrierGroup::tell_released() {
  for (const Member& member : others_) {
    if (page_->waits_for_message(member.place)) tell(member, wire::BarrierNote::released, 0);
  }
}

void BarrierGroup::ask() {
  if (!collects() && !closing_) tell(others_[0], wire::BarrierNote::ask, passed_ + 1);
}

/// A made group has lost that member, for good; by the page all others see it too.
void BarrierGroup::mark_over(Member& member, ErrorCode code) {
  if (!made() || member.over != ErrorCode::ok) return;
  member.over = code;
  if (page_) page_->mark(member.place, code);
}

void BarrierGroup::break_page(const Error& error) {
  if (page_) page_->break_with(error);
}

}  // namespace hixl::group
