// SPDX-License-Identifier: Apache-2.0
//
// Deadline: the end of a call that takes several steps. Each step gets what is left, so that the call as a whole has
// the time that the program gave it.
#pragma once

#include <algorithm>
#include <chrono>

#include <hixl/types.hpp>

namespace hixl::api {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  /// Negative times are over at once. Years are as good as for ever, and do not overflow.
  explicit Deadline(Timeout timeout) : end_(Clock::now() + std::clamp<Timeout>(timeout, Timeout{}, k_most)) {}
  [[nodiscard]] Clock::time_point end() const noexcept { return end_; }
  [[nodiscard]] bool passed() const { return left() == Timeout{}; }
  /// 0 when it has passed.
  [[nodiscard]] Timeout left() const { return std::max<Timeout>(end_ - Clock::now(), Timeout{}); }

 private:
  static constexpr Timeout k_most = std::chrono::hours(24 * 365);
  Clock::time_point end_;
};

}  // namespace hixl::api
