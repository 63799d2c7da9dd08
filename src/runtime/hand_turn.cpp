// SPDX-License-Identifier: Apache-2.0
#include "runtime/hand_turn.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace hixl::runtime {

HandTurn::HandTurn(Crank& crank, Fd poll_fd, Timeout patience) noexcept
    : crank_(&crank), poll_fd_(std::move(poll_fd)), patience_(patience), driver_(std::this_thread::get_id()) {}

std::size_t HandTurn::poll() noexcept {
  std::thread::id nobody;
  const std::thread::id self = std::this_thread::get_id();
  if (!turner_.compare_exchange_strong(nobody, self, std::memory_order_acquire, std::memory_order_relaxed)) return 0;
  polls_.fetch_add(1, std::memory_order_relaxed);
  driver_.store(self, std::memory_order_relaxed);
  const std::size_t work = crank_ != nullptr ? crank_->turn() : 0;
  const After after = std::exchange(after_, {});
  turner_.store(std::thread::id(), std::memory_order_release);
  if (after.run != nullptr) after.run(after.context);
  return work;
}

bool HandTurn::drives() const noexcept { return driver_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

void HandTurn::take() noexcept { driver_.store(std::this_thread::get_id(), std::memory_order_relaxed); }

void HandTurn::end() noexcept {
  const std::thread::id self = std::this_thread::get_id();
  if (turner_.load(std::memory_order_relaxed) != self) {
    std::thread::id nobody;
    // A turn is short; and who destroys a runtime while another thread turns it has to live with the wait.
    while (!turner_.compare_exchange_weak(nobody, self, std::memory_order_acquire, std::memory_order_relaxed)) {
      nobody = std::thread::id();
      std::this_thread::yield();
    }
    crank_ = nullptr;
    turner_.store(std::thread::id(), std::memory_order_release);
  } else {
    crank_ = nullptr;
  }
}

void HandTurn::rest(const WaitLimit& limit) noexcept {
  if (at_once_.load(std::memory_order_relaxed)) return;
  pollfd waited{poll_fd_.get(), POLLIN, 0};
  timespec left{};
  if (!limit.none()) left = limit.left();
  const int error = errno;
  static_cast<void>(::ppoll(&waited, 1, limit.none() ? nullptr : &left, nullptr));  // every outcome: look again
  errno = error;
}

Woken HandTurn::sleep_on(FutexWord& word, std::uint32_t expected, const WaitLimit& limit) noexcept {
  const std::uint64_t before = polls();
  const Woken woken = futex_wait(word, expected, limit.within(patience_));
  if (woken != Woken::time_over || limit.passed()) return woken;
  if (polls() == before) take();
  return Woken::maybe;
}

}  // namespace hixl::runtime
