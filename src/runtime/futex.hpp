// SPDX-License-Identifier: Apache-2.0
//
// Sleeping on a 32-bit word until somebody changes it: what the blocking calls of the program's threads stand on. The
// loop never waits here. Thread-safe.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

#include <hixl/types.hpp>

namespace hixl::runtime {

using FutexWord = std::atomic<std::uint32_t>;

/// Until when a blocking call may wait, fixed when it begins, so that signals and early wake-ups do not lengthen it.
/// This is the one clock that is read outside an event port: the caller's thread waits in real time on whatever loop.
class WaitLimit {
 public:
  /// Negative: no limit. Reads the clock only for a limit that is neither none nor zero.
  explicit WaitLimit(Timeout timeout) noexcept;
  [[nodiscard]] bool none() const noexcept { return kind_ == Kind::none; }
  [[nodiscard]] bool zero() const noexcept { return kind_ == Kind::zero; }
  /// The earlier of this limit and `timeout` (positive) from now.
  [[nodiscard]] WaitLimit within(Timeout timeout) const noexcept;
  [[nodiscard]] bool passed() const noexcept;
  /// What is left of it, 0 when it has passed. Meaningless when none().
  [[nodiscard]] timespec left() const noexcept;
  /// Absolute, CLOCK_MONOTONIC. Meaningless when none() or zero().
  [[nodiscard]] const timespec& until() const noexcept { return until_; }

 private:
  enum class Kind : std::uint8_t { none, zero, until };
  Kind kind_ = Kind::none;
  timespec until_{};
};

enum class Woken : std::uint8_t { maybe, time_over };
/// Sleeps while the word holds `expected`, at most until the limit. `maybe`: look again; it may be for nothing.
[[nodiscard]] Woken futex_wait(FutexWord& word, std::uint32_t expected, const WaitLimit& limit) noexcept;
/// Wakes all who sleep on the word. One system call.
void futex_wake_all(FutexWord& word) noexcept;

/// Brings the cache line of `place` here for writing, without waiting. (The compiler's own builtin fetches for reading
/// on x86-64 processors older than it knows of.)
inline void prefetch_for_write(const void* place) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(place)));
#else
  __builtin_prefetch(place, 1);
#endif
}

/// Tells the processor that this thread spins.
inline void spin_pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace hixl::runtime
