// SPDX-License-Identifier: Apache-2.0
//
// The futex system call. FUTEX_WAIT_BITSET is used for waiting because its limit is an absolute time; a relative one
// would begin anew after every signal.
#include "runtime/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace hixl::runtime {

namespace {

constexpr std::int64_t k_second_ns = 1'000'000'000;
/// A limit beyond this is no limit: a thousand years do not fit into every clock.
constexpr Timeout k_forever = std::chrono::hours(24 * 365 * 100);

static_assert(sizeof(FutexWord) == sizeof(std::uint32_t) && FutexWord::is_always_lock_free,
              "the kernel reads the word as a plain number");

bool earlier(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

}  // namespace

WaitLimit::WaitLimit(Timeout timeout) noexcept {
  if (timeout < Timeout(0) || timeout > k_forever) return;
  if (timeout == Timeout(0)) {
    kind_ = Kind::zero;
    return;
  }
  kind_ = Kind::until;
  clock_gettime(CLOCK_MONOTONIC, &until_);
  const std::int64_t nanoseconds = until_.tv_nsec + timeout.count() % k_second_ns;
  until_.tv_sec += timeout.count() / k_second_ns + nanoseconds / k_second_ns;
  until_.tv_nsec = nanoseconds % k_second_ns;
}

WaitLimit WaitLimit::within(Timeout timeout) const noexcept {
  const WaitLimit other(timeout);
  if (none()) return other;
  return zero() || earlier(until_, other.until_) ? *this : other;
}

bool WaitLimit::passed() const noexcept {
  if (kind_ != Kind::until) return zero();
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return !earlier(now, until_);
}

timespec WaitLimit::left() const noexcept {
  timespec now{};
  if (kind_ != Kind::until) return now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (!earlier(now, until_)) return {};
  timespec left{until_.tv_sec - now.tv_sec, until_.tv_nsec - now.tv_nsec};
  if (left.tv_nsec < 0) left = {left.tv_sec - 1, left.tv_nsec + k_second_ns};
  return left;
}

Woken futex_wait(FutexWord& word, std::uint32_t expected, const WaitLimit& limit) noexcept {
  if (limit.zero()) return Woken::time_over;
  const timespec* until = limit.none() ? nullptr : &limit.until();
  const long result = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected, until, nullptr,
                              FUTEX_BITSET_MATCH_ANY);
  return result != 0 && errno == ETIMEDOUT ? Woken::time_over : Woken::maybe;
}

void futex_wake_all(FutexWord& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace hixl::runtime
