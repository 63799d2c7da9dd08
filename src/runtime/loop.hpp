// SPDX-License-Identifier: Apache-2.0
//
// Loop: one rank's single thread of control. A turn is bounded: mail, then pollers, then due timers, then deferred
// tasks. It does not sleep by itself; a driver (own thread, host's loop, simulator) does that between turns.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/list.hpp"
#include "base/random.hpp"
#include "base/time.hpp"
#include "runtime/event_port.hpp"
#include "runtime/limited_log.hpp"
#include "runtime/mailbox.hpp"
#include "runtime/timer.hpp"

namespace hixl::runtime {

class HandTurn;

struct TaskTag;
/// Work for later in this turn or the next, once per defer(). Embedded in the actor that owns it; destroying it
/// withdraws it. The way to call back without calling inline.
class Task : public ListNode<TaskTag> {
 public:
  virtual void run() = 0;

 protected:
  ~Task() = default;
};

struct PollerTag;
/// Something whose completions are found by looking (a completion ring, a NIC queue). Polled every turn.
class Poller : public ListNode<PollerTag> {
 public:
  /// Does a bounded amount of work; true when it did any.
  virtual bool poll() = 0;
  /// True when poll() would find nothing now and nothing is outstanding that could complete without a wake-up; the loop
  /// may sleep only if all say so. Asked once sleep is announced: a source that wakes the loop through Wakeup does
  /// so from then on, and what it brought before must be seen here.
  [[nodiscard]] virtual bool can_sleep() = 0;

 protected:
  ~Poller() = default;
};

/// Somebody who must know that the loop was late before anything that lay waiting meanwhile is looked at: before the
/// events of that time are delivered, and before mail and timers. Once each time that it was late.
class LateWatch {
 public:
  /// `lag`: by how much. May close streams; called from awake(), look_at_clock() and turn().
  virtual void on_late(Duration lag) = 0;

 protected:
  ~LateWatch() = default;
};

/// Which thread turns a loop, and in which process. Shared by the loop and whoever must know without keeping the loop
/// alive (a request that is waited for while its runtime goes away). Thread-safe.
class LoopThread {
 public:
  explicit LoopThread(std::shared_ptr<const ForkMark> mark) noexcept : mark_(std::move(mark)) {}
  /// True in a forked child of the process that made the loop.
  [[nodiscard]] bool forked() const noexcept { return mark_->forked(); }
  void bind_here() noexcept { id_.store(std::this_thread::get_id(), std::memory_order_release); }
  void unbind() noexcept { id_.store(std::thread::id(), std::memory_order_release); }
  [[nodiscard]] bool here() const noexcept { return id_.load(std::memory_order_acquire) == std::this_thread::get_id(); }
  /// Null for a loop that turns by itself. Set by the driver before other threads know the loop.
  void set_hand(std::shared_ptr<HandTurn> hand) noexcept { hand_ = std::move(hand); }
  [[nodiscard]] const std::shared_ptr<HandTurn>& hand() const noexcept { return hand_; }

 private:
  std::atomic<std::thread::id> id_{};
  std::shared_ptr<const ForkMark> mark_;
  std::shared_ptr<HandTurn> hand_;
};

/// Owner: core. Loop-bound, but for mailbox().post(), on_loop_thread() and thread(). Pollers, tasks, timers and mail
/// targets outlive the loop or leave it before they are destroyed (pollers, tasks and timers do that by themselves).
class Loop final {
 public:
  /// `mail_capacity`: messages that can wait; sized so that posting allocates nothing.
  Loop(EventPort& port, std::uint64_t seed, std::size_t mail_capacity);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// The time at which this turn began, or at which the loop woke up since.
  [[nodiscard]] Instant now() const noexcept { return now_; }
  [[nodiscard]] Random& random() noexcept { return random_; }
  [[nodiscard]] EventPort& port() noexcept { return port_; }
  [[nodiscard]] Mailbox& mailbox() noexcept { return mailbox_; }
  /// For lines that outside events can cause again and again.
  [[nodiscard]] LimitedLog& log() noexcept { return log_; }

  /// Starts or moves the timer. Fires once, in the first turn at or after `due`.
  void start(Timer& timer, Instant due) { timers_.start(timer, due); }
  void start_after(Timer& timer, Duration delay) { timers_.start(timer, now_ + delay); }
  void defer(Task& task) {
    if (!task.linked()) tasks_.push_back(task);
  }
  /// Until the poller is destroyed or unlinked. One that is attached from poll() is polled from the next turn on.
  void attach(Poller& poller) {
    if (!poller.linked()) pollers_.push_back(poller);
  }

  /// One bounded turn; true when it did any work or has more to do now. Sets now() first. A turn inside a turn does
  /// nothing and answers false, and so does one in a forked child.
  bool turn();
  /// When the next timer is due; k_never without one.
  [[nodiscard]] Instant next_due() { return timers_.next_due(); }
  /// Drivers: announces sleep. False when mail, tasks, timers or a poller came in between: turn again. After true,
  /// sleep until wake() or next_due(), then call awake().
  [[nodiscard]] bool prepare_sleep();
  /// Comes before the events that ended the sleep are delivered, and so now() and lag() are brought up to date here:
  /// otherwise what arrives after a long sleep would be dated before it.
  void awake() noexcept {
    mailbox_.wakeup().awake();
    read_clock();
  }
  /// Drivers: before events are delivered without a sleep, since the process may have been stopped at any point.
  void look_at_clock() { read_clock(); }
  /// One; null: nobody any more. Told when the loop was late by more than `limit`.
  void watch_lateness(LateWatch* watch, Duration limit) noexcept {
    late_watch_ = watch;
    late_limit_ = limit;
  }
  /// The driver's thread, set by it; anything that would block asks this. Thread-safe.
  void bind_to_this_thread() noexcept { thread_->bind_here(); }
  [[nodiscard]] bool on_loop_thread() const noexcept { return thread_->here(); }
  [[nodiscard]] const std::shared_ptr<LoopThread>& thread() const noexcept { return thread_; }
  /// How long now() is after its first due timer (or after the previous turn, if that was later): the time by
  /// which the loop itself is late, and no peer.
  [[nodiscard]] Duration lag() const noexcept { return lag_; }
  /// The longest turn so far.
  [[nodiscard]] Duration longest_turn() const noexcept { return longest_turn_; }

 private:
  void read_clock();
  bool poll_all();
  bool run_tasks();
  void measure_turn();

  // What other threads read comes first, the rest on cache lines of its own: the loop writes there every turn, and a
  // posting thread would wait for each such line.
  EventPort& port_;
  std::shared_ptr<LoopThread> thread_;
  Mailbox mailbox_;
  alignas(64) Random random_;
  Instant now_;
  Instant turned_;  // now_ of the last turn
  Duration lag_{0};
  LateWatch* late_watch_ = nullptr;
  Duration late_limit_{0};
  Instant late_told_{};
  Duration longest_turn_{0};
  bool turning_ = false;
  TimerWheel timers_;
  LimitedLog log_{*this};
  List<Task, TaskTag> tasks_;
  List<Poller, PollerTag> pollers_;
};

}  // namespace hixl::runtime
