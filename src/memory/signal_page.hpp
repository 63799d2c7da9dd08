// SPDX-License-Identifier: Apache-2.0
//
// SignalPage: where waiters of a rank sleep. Peers that store a signal word straight into this rank's window ring here,
// and make the system call only when a waiter is marked. Written by peers too: a hostile one can cause or suppress
// wake-ups, so a waiter looks again by itself every k_recheck.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include <hixl/result.hpp>
#include <hixl/types.hpp>

#include "memory/device.hpp"
#include "memory/window.hpp"

namespace hixl::memory {

inline constexpr std::chrono::milliseconds k_recheck{100};

/// The owner's side. Thread-safe.
class SignalPage {
 public:
  /// `recheck`: how long a waiter relies on being woken; tests take a long one, to see that no wake-up is lost.
  [[nodiscard]] static Result<std::unique_ptr<SignalPage>> create(std::chrono::nanoseconds recheck = k_recheck);
  /// Looks at least once, whatever the timeout. Spins for `spin`, then sleeps on the futex until `holds(load_word())`;
  /// DEADLINE_EXCEEDED after `timeout`. STOPPED after close().
  [[nodiscard]] Result<std::uint64_t> wait(Device& device, const std::byte* word, Compare compare, std::uint64_t value,
                                           std::chrono::nanoseconds timeout, std::chrono::nanoseconds spin) noexcept;
  void ring() noexcept;   ///< after a word was stored: wakes waiters if any is marked
  void close() noexcept;  ///< ends all waits
  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_seq_cst); }
  [[nodiscard]] Window& window() noexcept { return *window_; }

 private:
  SignalPage() = default;
  std::unique_ptr<Window> window_;
  std::chrono::nanoseconds recheck_{};
  std::atomic<bool> closed_{false};  // here and not in the page, where a peer could set it
};

/// A peer's page. Thread-safe.
class SignalBell {
 public:
  [[nodiscard]] static Result<std::unique_ptr<SignalBell>> map(int fd);
  void ring() noexcept;  ///< call after the word is stored

 private:
  SignalBell() = default;
  std::unique_ptr<MappedWindow> window_;
};

[[nodiscard]] bool holds(std::uint64_t seen, Compare compare, std::uint64_t value) noexcept;

}  // namespace hixl::memory
