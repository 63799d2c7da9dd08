// SPDX-License-Identifier: Apache-2.0
//
// LinkHealth: how far a link is trusted, as plain state. It says how long a broken link waits before it is dialled
// again, what share of its credit one that came back is given, how fast it is, and how long a probe takes on it. Does
// no I/O and reads no clock; whole numbers only, so that simulated runs are the same everywhere.
//
// Loop-bound. Owner: the link's actor; lives as long as that, over all generations of the link.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/random.hpp"
#include "base/time.hpp"
#include "peer/timing.hpp"

namespace hixl::peer {

class LinkHealth {
 public:
  // ---- failures ----
  /// The link broke, or could not be made.
  void note_failure(Instant now) noexcept;
  /// The peer has a new life, or a new address: what the old one did says nothing.
  void forget_failures() noexcept;
  /// Random time until the next dial: it doubles with each failure in a row, up to a cap. With `spare`, another link
  /// stands, and one that fails again and again stays away until its penalty has decayed.
  [[nodiscard]] Duration backoff(Instant now, const Timing& timing, Random& random, bool spare) noexcept;
  /// Failures since the link last stood for k_link_proved.
  [[nodiscard]] std::uint32_t failures_in_a_row() const noexcept { return in_a_row_; }

  // ---- coming up ----
  void note_up(Instant now) noexcept;
  /// Between note_up() after a failure and the last of the probes.
  [[nodiscard]] bool on_probation() const noexcept { return probes_left_ > 0; }
  /// Length of the probe that is due: small ones first, so that a path which loses large packets is found out.
  [[nodiscard]] std::size_t probe_bytes() const noexcept;
  /// A probe of this length came back whole.
  void note_probe(Instant now) noexcept;
  /// Percent of its credit: 0 on probation, then rising in steps of a second.
  [[nodiscard]] std::uint32_t share(Instant now) const noexcept;

  // ---- speed ----
  /// Bytes ended while the link was busy for `time`. Busy is not full: of a link that is given one short attempt at a
  /// time this is its way there and back, and the rate no more than a lower bound.
  void note_work(std::uint64_t bytes, Duration time) noexcept;
  /// Bytes a second while busy; 0: not known yet.
  [[nodiscard]] std::uint64_t rate() const noexcept { return rate_; }
  /// Compared with its siblings' median, now and then: DEGRADED after 2 s below a quarter, until above a half.
  void compare(std::uint64_t median, Instant now) noexcept;
  [[nodiscard]] bool degraded() const noexcept { return degraded_; }
  void note_round_trip(Duration time) noexcept;
  [[nodiscard]] Duration round_trip() const noexcept { return round_trip_; }
  /// Silence after which the link is suspected.
  [[nodiscard]] Duration stall_after(Duration least) const noexcept {
    return std::max(least, k_stall_round_trips * round_trip_);
  }

 private:
  [[nodiscard]] std::uint32_t penalty(Instant now) noexcept;

  std::uint32_t penalty_ = 0;  // 1000 a failure
  Instant penalty_at_{};
  bool held_ = false;
  std::uint32_t in_a_row_ = 0;
  bool failed_before_ = false;  // since forget_failures()
  Instant up_since_{};
  std::uint32_t probes_left_ = 0;
  Instant proved_at_{};
  bool ramping_ = false;
  std::uint64_t rate_ = 0;
  std::uint64_t work_bytes_ = 0;
  Duration work_time_{};
  bool degraded_ = false;
  Instant slow_since_{};  // epoch: not slow
  Duration round_trip_{};
};

}  // namespace hixl::peer
