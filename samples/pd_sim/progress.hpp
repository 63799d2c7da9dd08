// SPDX-License-Identifier: Apache-2.0
//
// How far a run is: a bar on a terminal, a line now and then elsewhere.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "event_queue.hpp"

namespace pd {

class Progress {
 public:
  Progress() : terminal_(::isatty(STDOUT_FILENO) == 1) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows it if it is time to.
  void show(std::size_t done, std::size_t total, double gigabytes, std::size_t errors) {
    const auto now = Clock::now();
    if (now < next_) return;
    next_ = now + (terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000));
    const double share = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
    if (terminal_) {
      constexpr std::size_t k_width = 40;
      const auto filled = static_cast<std::size_t>(share * k_width);
      const std::string bar = std::string(filled, '#') + std::string(k_width - filled, '.');
      std::printf("\r[%s] %3.0f %%  %zu/%zu requests, %.2f GB, %zu errors ", bar.c_str(), share * 100, done, total,
                  gigabytes, errors);
      shown_ = true;
    } else {
      std::printf("%zu/%zu requests, %.2f GB, %zu errors\n", done, total, gigabytes, errors);
    }
    std::fflush(stdout);
  }
  [[nodiscard]] Clock::time_point next() const { return next_; }

 private:
  void clear() {
    if (shown_) std::printf("\r%*s\r", 100, "");
  }
  bool terminal_;
  bool shown_ = false;
  Clock::time_point next_{};
};

}  // namespace pd
