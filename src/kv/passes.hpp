// SPDX-License-Identifier: Apache-2.0
//
// Passes: threads that are inside something, counted, so that who ends it waits until the last has come out.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace hixl::kv {

/// Thread-safe. Entering takes no lock, so that it may be tried in a forked child.
class Passes {
 public:
  /// Given back by its end.
  class Pass {
   public:
    explicit Pass(Passes& home) noexcept : home_(&home) {}
    Pass(Pass&& other) noexcept : home_(std::exchange(other.home_, nullptr)) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() {
      if (home_ != nullptr) home_->leave();
    }

   private:
    Passes* home_;
  };

  /// Nothing: it is shut.
  [[nodiscard]] std::optional<Pass> enter() noexcept {
    std::uint32_t seen = word_.load();
    do {
      if ((seen & k_shut) != 0) return std::nullopt;
    } while (!word_.compare_exchange_weak(seen, seen + 1));
    return Pass(*this);
  }
  /// Nobody enters any more.
  void shut() noexcept { word_.fetch_or(k_shut); }
  /// Of what was shut. False: somebody is still inside.
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return left_.wait_until(lock, deadline, [this] { return word_.load() == k_shut; });
  }

 private:
  /// The last one out of what is shut counts itself down under the lock, which the waiter holds while it looks: this
  /// object may go as soon as that one has seen nobody inside.
  void leave() noexcept {
    std::uint32_t seen = word_.load();
    while ((seen & k_shut) == 0) {
      if (word_.compare_exchange_weak(seen, seen - 1)) return;
    }
    const std::lock_guard lock(mutex_);
    if (word_.fetch_sub(1) == (k_shut | 1U)) left_.notify_all();
  }

  static constexpr std::uint32_t k_shut = std::uint32_t{1} << 31U;
  std::atomic<std::uint32_t> word_{0};  // k_shut, and how many are inside; all of it sequentially consistent
  std::mutex mutex_;                    // for who waits
  std::condition_variable left_;
};

}  // namespace hixl::kv
