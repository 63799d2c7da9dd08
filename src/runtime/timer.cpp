// SPDX-License-Identifier: Apache-2.0
//
// A tick is a millisecond, written as digits of six bits. A timer lies at the level of the highest digit in which its
// due tick differs from the present tick, in the slot of its own digit there. So a level holds only slots ahead of the
// present one, every timer of a lower level is due before every timer of a higher one, and the first occupied slot of
// the lowest occupied level is where the wheel has to stop next.
#include "runtime/timer.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace hixl::runtime {

namespace {

constexpr std::int64_t k_tick_ns = 1'000'000;

/// An instant before the clock's epoch counts as the epoch: it is due in either case.
std::uint64_t tick_of(Instant instant) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(instant.time_since_epoch().count(), 0) / k_tick_ns);
}

Instant start_of(std::uint64_t tick) {
  constexpr std::uint64_t k_last = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / k_tick_ns);
  return Instant(Duration(static_cast<std::int64_t>(std::min(tick, k_last)) * k_tick_ns));
}

}  // namespace

TimerWheel::TimerWheel(Instant now) : tick_(tick_of(now)) {}

void TimerWheel::start(Timer& timer, Instant due) {
  timer.unlink();
  timer.due_ = due;
  file(timer);
}

void TimerWheel::file(Timer& timer) {
  const std::uint64_t tick = std::max(tick_of(timer.due_), tick_);
  const std::uint64_t difference = tick ^ tick_;
  const int bits = std::bit_width(difference | 1U);
  const std::size_t level = static_cast<std::size_t>(bits - 1) / k_slot_bits;
  if (level >= k_levels) {
    far_.push_back(timer);
    return;
  }
  const std::size_t slot = (tick >> (level * k_slot_bits)) % k_slots;
  levels_[level].slots[slot].push_back(timer);
  levels_[level].occupied |= std::uint64_t{1} << slot;
}

void TimerWheel::refile(Slot& from) {
  Slot moving;
  moving.append(from);
  while (Timer* timer = moving.pop_front()) file(*timer);
}

bool TimerWheel::occupied(Level& level, std::size_t slot) {
  if (!level.slots[slot].empty()) return true;
  level.occupied &= ~(std::uint64_t{1} << slot);
  return false;
}

/// The first tick at or after the present one at which there is something to do, and the level whose slot begins there
/// (k_levels: the far timers). The largest tick when there is nothing.
TimerWheel::Stop TimerWheel::next_stop() {
  for (std::size_t i = 0; i < k_levels; ++i) {
    Level& level = levels_[i];
    const std::size_t shift = i * k_slot_bits;
    const std::size_t present = (tick_ >> shift) % k_slots;
    while (const std::uint64_t ahead = level.occupied & (~std::uint64_t{0} << present)) {
      const auto slot = static_cast<std::size_t>(std::countr_zero(ahead));
      if (!occupied(level, slot)) continue;
      if (i == 0) return {tick_ - present + slot, 0};
      const std::uint64_t round = tick_ >> (shift + k_slot_bits) << (shift + k_slot_bits);
      return {round | (static_cast<std::uint64_t>(slot) << shift), i};
    }
  }
  if (far_.empty()) return {std::numeric_limits<std::uint64_t>::max(), k_levels};
  constexpr std::size_t k_round_bits = k_levels * k_slot_bits;
  return {((tick_ >> k_round_bits) + 1) << k_round_bits, k_levels};
}

/// Moves the wheel to `now` and everything due then to ready_, millisecond by millisecond.
void TimerWheel::collect(Instant now) {
  const std::uint64_t target = std::max(tick_of(now), tick_);
  for (;;) {
    const Stop stop = next_stop();
    if (stop.tick > target) break;
    tick_ = stop.tick;
    if (stop.level == k_levels) {
      refile(far_);
    } else if (stop.level > 0) {
      refile(levels_[stop.level].slots[(tick_ >> (stop.level * k_slot_bits)) % k_slots]);
    } else if (tick_ < target) {
      ready_.append(levels_[0].slots[tick_ % k_slots]);
    } else {
      // The present millisecond is not over: some of its timers may be due later in it.
      Slot& slot = levels_[0].slots[tick_ % k_slots];
      for (Timer* timer = slot.front(); timer != nullptr;) {
        Timer* const following = slot.next(*timer);
        if (timer->due_ <= now) {
          timer->unlink();
          ready_.push_back(*timer);
        }
        timer = following;
      }
      break;
    }
  }
  tick_ = target;
}

TimerWheel::Advance TimerWheel::advance(Instant now, std::size_t budget) {
  collect(now);
  Advance done;
  while (done.fired < budget) {
    Timer* const timer = ready_.pop_front();
    if (timer == nullptr) break;
    ++done.fired;
    timer->on_timer();
  }
  done.more = next_due() <= now;
  return done;
}

Instant TimerWheel::next_due() {
  if (Timer* const timer = ready_.front(); timer != nullptr) return timer->due_;
  const Stop stop = next_stop();
  if (stop.tick == std::numeric_limits<std::uint64_t>::max()) return k_never;
  if (stop.level > 0) return start_of(stop.tick);
  Slot& slot = levels_[0].slots[stop.tick % k_slots];
  Instant first = k_never;
  for (Timer* timer = slot.front(); timer != nullptr; timer = slot.next(*timer)) first = std::min(first, timer->due_);
  return first;
}

}  // namespace hixl::runtime
