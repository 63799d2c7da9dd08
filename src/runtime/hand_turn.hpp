// SPDX-License-Identifier: Apache-2.0
//
// HandTurn: how a program turns a loop that has no thread and no libuv loop of the program under it. One thread turns
// at a time; the one that did so last is the driving thread, and while it waits it turns. Shared by core, by the
// threads that wait and by requests, which may outlive the loop.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include <hixl/result.hpp>

#include "runtime/event_port.hpp"
#include "runtime/futex.hpp"

namespace hixl::runtime {

/// What is turned. Called by one thread at a time.
class Crank {
 public:
  /// One bounded turn, without sleeping; the amount of work done. May be destroyed in it.
  virtual std::size_t turn() = 0;

 protected:
  ~Crank() = default;
};

/// Thread-safe. `patience`: when nobody has turned for so long, a thread that waits becomes the driving thread.
class HandTurn {
 public:
  HandTurn(Crank& crank, Fd poll_fd, Timeout patience) noexcept;
  HandTurn(const HandTurn&) = delete;
  HandTurn& operator=(const HandTurn&) = delete;

  /// Readable when poll() has something to do. Open as long as this object lives.
  [[nodiscard]] int fd() const noexcept { return poll_fd_.get(); }
  /// Turns once and makes this thread the driving one. 0 and nothing else when another thread turns at this moment,
  /// when called from inside a turn, and after the end.
  std::size_t poll() noexcept;
  [[nodiscard]] bool drives() const noexcept;
  /// From inside a turn: calls `run` once, when this turn is over and others may turn again. It may end the loop.
  void after_turn(void (*run)(void* context), void* context) noexcept { after_ = {run, context}; }
  /// The loop goes: waits until no other thread turns; nothing is turned from then on.
  void end() noexcept;

  void set_patience(Timeout patience) noexcept { patience_ = patience; }
  [[nodiscard]] Timeout patience() const noexcept { return patience_; }
  /// From inside a turn: there is more to do at once, so nobody has to ask the descriptor.
  void set_at_once(bool at_once) noexcept { at_once_.store(at_once, std::memory_order_relaxed); }
  /// How often it was turned.
  [[nodiscard]] std::uint64_t polls() const noexcept { return polls_.load(std::memory_order_relaxed); }

  enum class Waited : std::uint8_t { done, time_over, not_driving };
  /// Turns until `done()` or the limit; for the driving thread, outside turns. `step`: the longest sleep, where
  /// `done()` may come true without a turn. `not_driving`: another thread turns now; wait as others do.
  template <class Done>
  [[nodiscard]] Waited wait(Done&& done, const WaitLimit& limit, Timeout step = k_step) noexcept {
    for (;;) {
      if (done()) return Waited::done;
      if (!drives()) return Waited::not_driving;
      const std::size_t work = poll();
      if (done()) {
        send_off();
        return Waited::done;
      }
      if (limit.passed()) return Waited::time_over;
      if (work == 0) rest(limit.within(step));
    }
  }
  /// Makes the calling thread the driving one, as poll() would.
  void take() noexcept;
  /// For a thread that does not drive: sleeps on `word` as futex_wait does, but when nobody turned for the patience the
  /// thread becomes the driving one, and has to call wait().
  [[nodiscard]] Woken sleep_on(FutexWord& word, std::uint32_t expected, const WaitLimit& limit) noexcept;
  /// Turns until there is nothing more to do at once, or enough: what the last turn put into queues leaves, an answer
  /// to a peer above all. The caller of a blocking function may go on to something that waits for that very peer, and
  /// then nobody would turn.
  void send_off() noexcept {
    for (int turns = 0; turns < k_send_off_turns && drives() && poll() > 0; ++turns) {
    }
  }
  /// Each is bounded; after a few of them whoever still finds work has a busy runtime, and turns it anyway.
  static constexpr int k_send_off_turns = 8;
  /// A driving thread that sleeps looks again by itself: another one may have begun to turn, or ended the loop.
  static constexpr Timeout k_step = std::chrono::milliseconds(100);
  /// Until the descriptor is readable or the limit.
  void rest(const WaitLimit& limit) noexcept;

 private:
  struct After {
    void (*run)(void*) = nullptr;
    void* context = nullptr;
  };

  Crank* crank_;  // guarded by turner_
  After after_;   // guarded by turner_
  Fd poll_fd_;
  Timeout patience_;
  std::atomic<std::thread::id> turner_{};  // who is inside a turn; acquire and release hand the loop over
  std::atomic<std::thread::id> driver_;    // who turned last
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<bool> at_once_{false};
};

}  // namespace hixl::runtime
