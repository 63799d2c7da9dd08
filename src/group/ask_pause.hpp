// SPDX-License-Identifier: Apache-2.0
//
// How often somebody who waits for others asks again.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/time.hpp"

namespace hixl::group {

/// Above the round trip of any network meant here, so that nothing is repeated in a healthy one, and short enough that
/// a lost message is not felt as a hang.
inline constexpr Duration k_ask_pause = std::chrono::milliseconds(200);
/// Shortest: before a deadline questions come closer together, so that its error names those missing then.
inline constexpr Duration k_ask_pause_min = std::chrono::milliseconds(1);

/// `left`: until the deadline.
[[nodiscard]] constexpr Duration ask_pause(Duration left) noexcept {
  return std::clamp<Duration>(left / 2, k_ask_pause_min, k_ask_pause);
}

}  // namespace hixl::group
