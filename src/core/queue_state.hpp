// SPDX-License-Identifier: Apache-2.0
//
// QueueState: the places of a completion queue. A place is free, then taken by a post, then ready with an end in it,
// then polled and free. Posts and loops never wait: both lists that they touch are lock-free stacks of places. Only
// pollers wait, for each other.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <hixl/request.hpp>
#include <hixl/result.hpp>

#include "base/fork_mark.hpp"
#include "runtime/event_port.hpp"
#include "runtime/futex.hpp"
#include "runtime/hand_turn.hpp"
#include "runtime/loop.hpp"

namespace hixl::core {

class QueueState {
 public:
  [[nodiscard]] static Result<std::shared_ptr<QueueState>> create(std::uint32_t capacity);
  QueueState(std::uint32_t capacity, runtime::Fd event);

  // ---- posts, any thread ----
  /// A place for one end. BUSY (limit: capacity). Remembers whose loop will end it.
  [[nodiscard]] Result<std::uint32_t> reserve(const std::shared_ptr<runtime::LoopThread>& thread);
  /// Nothing was posted after all.
  void give_back(std::uint32_t place) noexcept;

  // ---- loops ----
  /// Once a place that was reserved. False: the queue is closed, and nobody will take it.
  [[nodiscard]] bool deliver(std::uint32_t place, const Completion& completion) noexcept;

  // ---- the program ----
  [[nodiscard]] int fd() noexcept;
  [[nodiscard]] std::size_t poll(std::span<Completion> out);
  [[nodiscard]] Result<std::size_t> wait(std::span<Completion> out, Timeout timeout);
  void close() noexcept { closed_.store(true, std::memory_order_release); }
  [[nodiscard]] std::uint32_t in_use() const noexcept { return in_use_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return static_cast<std::uint32_t>(places_.size()); }

 private:
  static constexpr std::uint32_t k_none = 0xffffffffU;
  struct Place {
    std::atomic<std::uint32_t> next{k_none};  // in whichever list it is
    Completion completion{};
  };

  void meet(const std::shared_ptr<runtime::LoopThread>& thread);
  [[nodiscard]] bool would_deadlock();
  [[nodiscard]] bool take_ready() noexcept;
  [[nodiscard]] std::vector<std::shared_ptr<runtime::LoopThread>> turned_by_hand();
  [[nodiscard]] bool turn_driven(const runtime::WaitLimit& limit);
  void await_event(std::uint32_t before, std::size_t round, const runtime::WaitLimit& limit);
  void quiet() noexcept;
  void signal() noexcept;

  std::vector<Place> places_;
  // Free places: first in the lower half, changes in the upper (a place may come back while another thread looks at
  // it).
  alignas(64) std::atomic<std::uint64_t> free_;
  std::atomic<std::uint32_t> in_use_{0};
  // Ends that no poller has taken, newest first. Taken all at once, so a place that comes back does no harm here.
  alignas(64) std::atomic<std::uint32_t> ready_{k_none};
  std::atomic<bool> wanted_{false};  // somebody has the descriptor
  // Set before the descriptor is written, cleared after it has been read: while set, it is readable or about to be.
  std::atomic<bool> signalled_{false};
  std::atomic<std::uint32_t> sleepers_{0};
  runtime::FutexWord events_{0};
  std::atomic<bool> closed_{false};
  runtime::Fd event_;
  ForkMark mark_;  // the descriptor is the parent's as well

  alignas(64) std::mutex pollers_;  // guards first_
  std::uint32_t first_ = k_none;    // ends taken over from ready_, oldest first

  std::mutex threads_mutex_;  // guards threads_
  std::vector<std::shared_ptr<runtime::LoopThread>> threads_;
  std::array<std::atomic<const runtime::LoopThread*>, 4> met_{};  // the first of them, to be found without a lock
};

/// Where the end of one operation goes besides its request.
struct QueuePlace {
  std::shared_ptr<QueueState> queue;
  std::uint32_t place = 0;
};

}  // namespace hixl::core
