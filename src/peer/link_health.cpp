// SPDX-License-Identifier: Apache-2.0
#include "peer/link_health.hpp"

#include <array>
#include <limits>

namespace hixl::peer {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t k_penalty = 1000;  // a failure
constexpr std::uint32_t k_penalty_max = 16'000;
/// More than three failures within about a minute are no accident: the link stays away until less than one is left.
constexpr std::uint32_t k_penalty_hold = 3 * k_penalty;
constexpr seconds k_half_life{60};
/// 50 ms doubled ten times is more than the cap of 30 s.
constexpr std::uint32_t k_doublings_max = 10;

/// The longest fits into a control body and, twice, into the queue of a stream.
constexpr std::array<std::size_t, k_probes> k_probe_bytes{64, 4096, 32U << 10U, 4096, 64};
struct Step {
  seconds after;
  std::uint32_t percent;
};
/// A flapping link takes little down with it; after three seconds it is one like the others.
constexpr std::array<Step, 4> k_ramp{{{seconds(0), 10}, {seconds(1), 25}, {seconds(2), 50}, {seconds(3), 100}}};
constexpr std::uint32_t k_degraded_share = 10;

/// A sample of the rate: long enough to hold many chunks of a fast link and one of a slow one.
constexpr milliseconds k_rate_sample{50};
constexpr seconds k_slow_time{2};

}  // namespace

std::uint32_t LinkHealth::penalty(Instant now) noexcept {
  while (penalty_ > 0 && now - penalty_at_ >= k_half_life) {
    penalty_ /= 2;
    penalty_at_ += k_half_life;
  }
  const auto part = static_cast<std::uint64_t>((now - penalty_at_) / milliseconds(1));
  const auto whole = static_cast<std::uint64_t>(k_half_life / milliseconds(1));
  // Straight between two halvings: the curve is of no importance, that it falls is.
  return penalty_ - static_cast<std::uint32_t>(penalty_ * std::min(part, whole) / (2 * whole));
}

void LinkHealth::note_failure(Instant now) noexcept {
  const bool stood = up_since_ != Instant{};
  if (stood && now - up_since_ >= k_link_proved) in_a_row_ = 0;
  up_since_ = {};
  in_a_row_ = std::min(in_a_row_ + 1, k_doublings_max);
  // One that stood and broke: dials that fail while it is away tell of the same trouble, and only make the wait longer.
  penalty_ = std::min(penalty(now) + (stood ? k_penalty : 0), k_penalty_max);
  penalty_at_ = now;
  held_ = held_ || penalty_ >= k_penalty_hold;
  failed_before_ = true;
  probes_left_ = 0;
  ramping_ = false;
  degraded_ = false;
  slow_since_ = {};
}

void LinkHealth::forget_failures() noexcept {
  penalty_ = in_a_row_ = 0;
  held_ = failed_before_ = false;
}

Duration LinkHealth::backoff(Instant now, const Timing& timing, Random& random, bool spare) noexcept {
  const Duration longest = std::min<Duration>(timing.backoff * (1U << in_a_row_), timing.backoff_cap);
  Duration wait{static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(longest.count()) + 1))};
  if (held_ && penalty(now) < k_penalty) held_ = false;
  // Looked at again after that: nobody else may stand by then.
  if (held_ && spare) wait = std::max<Duration>(wait, timing.backoff_cap / 2);
  return wait;
}

void LinkHealth::note_up(Instant now) noexcept {
  up_since_ = now;
  probes_left_ = failed_before_ ? k_probes : 0;
  ramping_ = false;
}

std::size_t LinkHealth::probe_bytes() const noexcept {
  return k_probe_bytes[k_probes - std::clamp<std::uint32_t>(probes_left_, 1, k_probes)];
}

void LinkHealth::note_probe(Instant now) noexcept {
  if (probes_left_ == 0) return;
  probes_left_ -= 1;
  if (probes_left_ > 0) return;
  ramping_ = true;
  proved_at_ = now;
}

std::uint32_t LinkHealth::share(Instant now) const noexcept {
  if (on_probation()) return 0;
  std::uint32_t percent = 100;
  if (ramping_) {
    for (const Step& step : k_ramp) {
      if (now - proved_at_ >= step.after) percent = step.percent;
    }
  }
  return degraded_ ? std::min(percent, k_degraded_share) : percent;
}

void LinkHealth::note_work(std::uint64_t bytes, Duration time) noexcept {
  work_bytes_ += bytes;
  work_time_ += time;
  if (work_time_ < k_rate_sample) return;
  const auto us = static_cast<std::uint64_t>(work_time_ / std::chrono::microseconds(1));
  const std::uint64_t sample = std::max<std::uint64_t>(work_bytes_ * 1'000 / us * 1'000, 1);
  rate_ = rate_ == 0 ? sample : rate_ / 4 * 3 + sample / 4;
  work_bytes_ = 0;
  work_time_ = {};
}

void LinkHealth::compare(std::uint64_t median, Instant now) noexcept {
  if (degraded_) {
    if (rate_ > median / 2) degraded_ = false;
    slow_since_ = {};
    return;
  }
  if (rate_ == 0 || rate_ >= median / 4) {
    slow_since_ = {};
    return;
  }
  if (slow_since_ == Instant{}) slow_since_ = now;
  degraded_ = now - slow_since_ >= k_slow_time;
}

void LinkHealth::note_round_trip(Duration time) noexcept {
  round_trip_ = round_trip_ == Duration{} ? time : round_trip_ - round_trip_ / 8 + time / 8;
}

}  // namespace hixl::peer
