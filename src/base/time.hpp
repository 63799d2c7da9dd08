// SPDX-License-Identifier: Apache-2.0
//
// Time as a value that somebody hands in. Only an event port reads a clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace hixl {

using Duration = std::chrono::nanoseconds;

/// Tag of the monotonic clock of an event port (real or virtual). Has no now(): ask the port.
struct PortClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<PortClock>;
  static constexpr bool is_steady = true;
};
using Instant = PortClock::time_point;
inline constexpr Instant k_never = Instant::max();

}  // namespace hixl
