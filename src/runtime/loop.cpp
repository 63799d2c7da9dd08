// SPDX-License-Identifier: Apache-2.0
//
// The phases of a turn, and the last look before a sleep.
#include "runtime/loop.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace hixl::runtime {

namespace {

/// Messages and timers a turn: at well under a microsecond each, neither keeps the other phases waiting for long.
constexpr std::size_t k_mail_budget = 256;
constexpr std::size_t k_timer_budget = 256;
/// A turn of this length delays every peer's heartbeat noticeably; mostly a callback that does too much.
constexpr Duration k_long_turn = std::chrono::milliseconds(50);

}  // namespace

Loop::Loop(EventPort& port, std::uint64_t seed, std::size_t mail_capacity)
    : port_(port),
      thread_(std::make_shared<LoopThread>(port.fork_mark())),
      mailbox_(port, mail_capacity),
      random_(seed),
      now_(port.now()),
      turned_(now_),
      timers_(now_) {}

Loop::~Loop() { thread_->unbind(); }

void Loop::read_clock() {
  // Before the previous turn the loop was not late, whatever due time a timer was started with.
  const Instant due = std::max(timers_.next_due(), turned_);
  now_ = std::max(now_, port_.now());
  lag_ = std::max(now_ - due, Duration(0));
  // Once a lateness: the same one is seen again until the turn has run its timers. In the middle of a turn somebody
  // else is at work; the next look is before the next event.
  if (late_watch_ == nullptr || lag_ <= late_limit_ || due < late_told_ || turning_) return;
  late_told_ = now_;
  turning_ = true;
  late_watch_->on_late(lag_);
  turning_ = false;
}

bool Loop::turn() {
  if (turning_ || thread_->forked()) return false;
  read_clock();
  turning_ = true;
  turned_ = now_;

  bool worked = mailbox_.drain(k_mail_budget) > 0;
  worked |= poll_all();
  const TimerWheel::Advance timers = timers_.advance(now_, k_timer_budget);
  worked |= timers.fired > 0;
  worked |= run_tasks();
  if (worked) measure_turn();
  turning_ = false;
  // Not the mailbox again: mail beyond the budget means that there was work, and each look at it takes a cache line
  // from the senders.
  return worked || timers.more || !tasks_.empty();
}

/// Each poller leaves the round before it is polled, so it may unlink, destroy or attach itself and others meanwhile.
bool Loop::poll_all() {
  List<Poller, PollerTag> round;
  round.append(pollers_);
  bool worked = false;
  while (Poller* poller = round.pop_front()) {
    pollers_.push_back(*poller);
    worked |= poller->poll();
  }
  return worked;
}

/// Only what was queued when the phase began: a task that defers itself again runs in the next turn.
bool Loop::run_tasks() {
  List<Task, TaskTag> round;
  round.append(tasks_);
  bool worked = false;
  while (Task* task = round.pop_front()) {
    worked = true;
    task->run();
  }
  return worked;
}

void Loop::measure_turn() {
  const Duration length = port_.now() - now_;
  if (length <= longest_turn_) return;
  longest_turn_ = length;
  if (length < k_long_turn) return;
  log_.warn({"long turns of the event loop"},
            "the event loop was busy for {} ms in one turn (a long callback, or large memory being released)",
            std::chrono::duration_cast<std::chrono::milliseconds>(length).count());
}

bool Loop::prepare_sleep() {
  Wakeup& wakeup = mailbox_.wakeup();
  // Announced first, looked second: whoever adds work after the look sees the announcement and wakes the loop.
  wakeup.asleep();
  bool idle = mailbox_.empty() && tasks_.empty() && timers_.next_due() > port_.now();
  for (Poller* poller = pollers_.front(); idle && poller != nullptr; poller = pollers_.next(*poller)) {
    idle = poller->can_sleep();
  }
  if (!idle) wakeup.awake();
  return idle;
}

}  // namespace hixl::runtime
