// SPDX-License-Identifier: Apache-2.0
//
// LimitedLog: lines that outside events can cause again and again, within a quota by the loop's clock. What was left
// out is told by one line when the period is over, by a timer if nothing else comes.
//
// Loop-bound. Owner: Loop.
#pragma once

#include <utility>

#include "base/log_quota.hpp"
#include "runtime/timer.hpp"

namespace hixl::runtime {

class Loop;

class LimitedLog final : private Timer {
 public:
  explicit LimitedLog(Loop& loop) noexcept : loop_(loop) {}
  ~LimitedLog();
  LimitedLog(const LimitedLog&) = delete;
  LimitedLog& operator=(const LimitedLog&) = delete;

  template <class... Args>
  void info(const log::Topic& topic, fmt::format_string<Args...> format, Args&&... args) {
    if (admit(log::Level::info, topic)) log::info(format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void warn(const log::Topic& topic, fmt::format_string<Args...> format, Args&&... args) {
    if (admit(log::Level::warn, topic)) log::warn(format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void error(const log::Topic& topic, fmt::format_string<Args...> format, Args&&... args) {
    if (admit(log::Level::error, topic)) log::error(format, std::forward<Args>(args)...);
  }

 private:
  [[nodiscard]] bool admit(log::Level level, const log::Topic& topic);
  void on_timer() override;
  void flush(Instant now);

  Loop& loop_;
  log::Quota quota_;
};

}  // namespace hixl::runtime
