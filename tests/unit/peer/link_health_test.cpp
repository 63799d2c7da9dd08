// SPDX-License-Identifier: Apache-2.0
#include "peer/link_health.hpp"

#include <doctest/doctest.h>

#include "peer/token_bucket.hpp"

using namespace hixl;
using hixl::peer::LinkHealth;
using hixl::peer::Timing;
using hixl::peer::TokenBucket;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

const Instant k_start = Instant{} + seconds(1000);

Duration longest_of(LinkHealth& health, Instant now, bool spare) {
  Random random(5);
  Duration longest{};
  for (int i = 0; i < 500; ++i) longest = std::max(longest, health.backoff(now, Timing{}, random, spare));
  return longest;
}

}  // namespace

TEST_CASE("the wait doubles with each failure in a row, has a cap, and begins anew when the link has proved itself") {
  LinkHealth health;
  const Timing timing;
  Instant now = k_start;
  Duration before{};
  for (int failures = 1; failures <= 30; ++failures) {
    health.note_failure(now);
    const Duration longest = longest_of(health, now, false);
    CHECK(longest <= timing.backoff_cap);
    if (failures < 8) CHECK(longest > before);
    before = longest;
    now += milliseconds(10);
  }
  CHECK(before > timing.backoff_cap / 2);
  health.note_up(now);
  now += milliseconds(100);
  health.note_failure(now);  // broke at once: no beginning
  CHECK(longest_of(health, now, false) > timing.backoff_cap / 2);
  health.note_up(now);
  now += peer::k_link_proved;
  health.note_failure(now);
  CHECK(longest_of(health, now, false) <= 2 * timing.backoff);
}

TEST_CASE("P41 S58 a link that fails again and again stays away while another one stands, and comes back") {
  LinkHealth health;
  const Timing timing;
  Instant now = k_start;
  for (int i = 0; i < 4; ++i) {
    health.note_up(now);
    now += seconds(2);  // stood long enough that nothing is in a row
    health.note_failure(now);
  }
  Random random(1);
  CHECK(health.backoff(now, timing, random, true) >= timing.backoff_cap / 2);
  CHECK(longest_of(health, now, false) <= 2 * timing.backoff);  // the last one left is needed
  // Dials that fail while it is away are no new offence.
  LinkHealth away;
  away.note_up(now);
  for (int i = 0; i < 10; ++i) away.note_failure(now);
  Random same(3), equal(3);
  LinkHealth copy = away;
  CHECK(away.backoff(now, timing, same, true) == copy.backoff(now, timing, equal, false));
  // The penalty decays, whatever had been: at most four half-lives from sixteen failures to less than one.
  for (int i = 0; i < 100; ++i) {
    health.note_up(now);
    health.note_failure(now);
  }
  now += seconds(5 * 60);
  health.note_up(now);
  now += seconds(2);
  CHECK(health.failures_in_a_row() > 0);
  Random again(1);
  static_cast<void>(health.backoff(now, timing, again, true));
  health.note_failure(now);
  CHECK(longest_of(health, now, true) <= 2 * timing.backoff);
}

TEST_CASE("after a failure a link proves itself, and is given its share step by step; a first one is trusted") {
  LinkHealth health;
  Instant now = k_start;
  health.note_up(now);
  CHECK_FALSE(health.on_probation());
  CHECK(health.share(now) == 100);
  health.note_failure(now);
  health.note_up(now);
  std::size_t largest = 0;
  for (std::uint32_t i = 0; i < peer::k_probes; ++i) {
    REQUIRE(health.on_probation());
    CHECK(health.share(now) == 0);
    largest = std::max(largest, health.probe_bytes());
    health.note_probe(now);
  }
  CHECK(largest >= 32U << 10U);
  CHECK_FALSE(health.on_probation());
  CHECK(health.share(now) == 10);
  CHECK(health.share(now + seconds(1)) == 25);
  CHECK(health.share(now + seconds(2)) == 50);
  CHECK(health.share(now + seconds(3)) == 100);
  health.forget_failures();  // another life of the peer
  health.note_up(now);
  CHECK_FALSE(health.on_probation());
}

TEST_CASE("a link far slower than its siblings for two seconds is degraded, and recovers") {
  LinkHealth health;
  const Instant now = k_start;
  health.note_work(5'000'000, milliseconds(100));  // 50 MB/s
  CHECK(health.rate() > 45'000'000);
  CHECK(health.rate() < 55'000'000);
  health.compare(400'000'000, now);
  CHECK_FALSE(health.degraded());
  health.compare(400'000'000, now + milliseconds(1900));
  CHECK_FALSE(health.degraded());
  health.compare(400'000'000, now + seconds(2));
  CHECK(health.degraded());
  CHECK(health.share(now + seconds(2)) == 10);
  for (int i = 0; i < 40; ++i) health.note_work(30'000'000, milliseconds(100));
  health.compare(400'000'000, now + seconds(3));
  CHECK_FALSE(health.degraded());
  CHECK(health.share(now + seconds(3)) == 100);
}

TEST_CASE("a stall is the time of the options, or many round trips where that is longer") {
  LinkHealth health;
  CHECK(health.stall_after(milliseconds(200)) == milliseconds(200));
  health.note_round_trip(milliseconds(50));
  CHECK(health.stall_after(milliseconds(200)) == milliseconds(800));
}

TEST_CASE("a bucket keeps to its rate over any time, and catches up a few milliseconds at most") {
  TokenBucket none(0);
  CHECK_FALSE(none.limited());
  none.take(1U << 30U, k_start);
  CHECK(none.open(k_start));

  TokenBucket bucket(100'000'000);
  Random random(9);
  Instant now = k_start;
  std::uint64_t taken = 0;
  while (now < k_start + seconds(10)) {
    if (bucket.open(now)) {
      const std::uint64_t bytes = random.between(1, 1U << 20U);
      bucket.take(bytes, now);
      taken += bytes;
      continue;
    }
    CHECK(bucket.opens_at() > now);
    now = bucket.opens_at() + Duration(random.below(3'000'000));  // a timer that is late
  }
  CHECK(taken >= 990'000'000);
  CHECK(taken <= 1'003'000'000);
  now += seconds(100);  // idle for long: no credit from then
  std::uint64_t burst = 0;
  while (bucket.open(now)) {
    bucket.take(64U << 10U, now);
    burst += 64U << 10U;
  }
  CHECK(burst <= 1'100'000);
  bucket.give_back(64U << 10U);
  CHECK(bucket.opens_at() <= now);
}
