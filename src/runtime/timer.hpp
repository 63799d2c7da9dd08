// SPDX-License-Identifier: Apache-2.0
//
// Timers without allocation: an intrusive hierarchical wheel, O(1) to start and cancel. Filed by the millisecond,
// fired by the nanosecond: never early, and in the first turn at or after its due time. Loop-bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/list.hpp"
#include "base/time.hpp"

namespace hixl::runtime {

struct TimerTag;
/// The wheel's part of a timer.
class TimerNode : public ListNode<TimerTag> {
 public:
  [[nodiscard]] Instant due() const noexcept { return due_; }

 private:
  friend class TimerWheel;
  Instant due_{};
};

/// Embedded in its owner; destroying it cancels it.
class Timer : public TimerNode {
 public:
  void cancel() noexcept { unlink(); }
  [[nodiscard]] bool active() const noexcept { return linked(); }
  virtual void on_timer() = 0;

 protected:
  ~Timer() = default;
};

class TimerWheel {
 public:
  explicit TimerWheel(Instant now);
  /// Starts or moves the timer. One that is due already fires in the next advance().
  void start(Timer& timer, Instant due);

  struct Advance {
    std::size_t fired = 0;
    bool more = false;  ///< more timers are due at the same `now`
  };
  /// Fires what is due at `now`, at most `budget` timers, millisecond by millisecond. A timer that is started from
  /// on_timer() waits for the next advance(). Not to be called from on_timer().
  Advance advance(Instant now, std::size_t budget);
  /// Never later than the first timer's due time (or than the last advance(), when that has passed); may be earlier (a
  /// wheel boundary). k_never when empty.
  [[nodiscard]] Instant next_due();

 private:
  static constexpr std::size_t k_levels = 4;
  static constexpr std::uint32_t k_slot_bits = 6;
  static constexpr std::size_t k_slots = std::size_t{1} << k_slot_bits;
  using Slot = List<Timer, TimerTag>;
  /// Timers whose due tick differs from tick_ first in this level's digit; `occupied` has a bit for each slot that may
  /// hold one (a cancelled timer does not clear it, a look does).
  struct Level {
    std::array<Slot, k_slots> slots;
    std::uint64_t occupied = 0;
  };
  struct Stop {
    std::uint64_t tick;
    std::size_t level;
  };

  void file(Timer& timer);
  void refile(Slot& from);
  void collect(Instant now);
  [[nodiscard]] Stop next_stop();
  [[nodiscard]] static bool occupied(Level& level, std::size_t slot);

  std::uint64_t tick_;  // milliseconds since the port clock's epoch
  std::array<Level, k_levels> levels_;
  Slot far_;    // beyond the top level's present round
  Slot ready_;  // due, to be fired
};

}  // namespace hixl::runtime
