// SPDX-License-Identifier: Apache-2.0
//
// What a rank's main thread waits for: messages of other ranks and lines of the launcher, in one queue.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "line_pipe.hpp"
#include "mailroom.hpp"

namespace pd {

using Clock = std::chrono::steady_clock;

[[nodiscard]] inline Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}
[[nodiscard]] inline double to_ms(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}
/// Processes of one host read the same steady clock, so its readings can travel.
[[nodiscard]] inline std::int64_t to_wire(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
[[nodiscard]] inline Clock::time_point from_wire(std::int64_t time) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(time)));
}

struct Event {
  hixl::Rank from = hixl::k_no_rank;  ///< k_no_rank: a line of the launcher
  Message message;
  Json line;
};

/// Any thread pushes, one pops.
class EventQueue {
 public:
  void push(Event&& event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    filled_.notify_one();
  }
  [[nodiscard]] std::optional<Event> pop_until(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    if (!filled_.wait_until(lock, deadline, [this] { return !events_.empty(); })) return {};
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Event> events_;
};

}  // namespace pd
