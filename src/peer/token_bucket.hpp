// SPDX-License-Identifier: Apache-2.0
//
// TokenBucket: keeps a link at its limit of bytes a second. A chunk may be taken while the account is not overdrawn,
// and is booked whole; what was missed while a timer came late may be caught up with, for a few milliseconds.
//
// Loop-bound. Plain arithmetic; the caller hands the time in.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.hpp"

namespace hixl::peer {

class TokenBucket {
 public:
  /// `rate`: bytes a second; 0: no limit.
  explicit TokenBucket(std::uint64_t rate) noexcept : rate_(rate) {}
  [[nodiscard]] bool limited() const noexcept { return rate_ != 0; }
  [[nodiscard]] bool open(Instant now) const noexcept { return rate_ == 0 || paid_until_ <= now; }
  /// When it opens, if nothing more is taken.
  [[nodiscard]] Instant opens_at() const noexcept { return paid_until_; }
  void take(std::uint64_t bytes, Instant now) noexcept {
    if (rate_ == 0) return;
    // At most 4 MiB a chunk and 64 KiB/s a link: the product stays below 2^53.
    const std::uint64_t ns = bytes * 1'000'000'000 / rate_;
    paid_until_ = std::max(paid_until_, now - k_catch_up) + Duration(static_cast<std::int64_t>(ns));
  }
  /// What was taken was not sent after all.
  void give_back(std::uint64_t bytes) noexcept {
    if (rate_ != 0) paid_until_ -= Duration(static_cast<std::int64_t>(bytes * 1'000'000'000 / rate_));
  }

 private:
  /// A few times the resolution of an event loop's timers (1 ms), so that a turn that comes late costs nothing.
  static constexpr std::chrono::milliseconds k_catch_up{10};
  std::uint64_t rate_;
  Instant paid_until_{};
};

}  // namespace hixl::peer
