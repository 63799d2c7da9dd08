// SPDX-License-Identifier: Apache-2.0
//
// Atomics between two peers: whatever becomes of links, sessions and lives, each is executed once or not at all, and
// its end says which, or that nobody can know.
#include <set>

#include "peer/atomic_numbers.hpp"
#include "peer_world.hpp"

using namespace hixl;
using namespace hixl::peer;
using namespace hixl::peer::test;

namespace {

constexpr std::uint64_t k_word = 4096;

/// The word's changes against what the ends said.
void check_sum(PeerWorld& world, std::uint64_t start, const std::vector<Job*>& jobs) {
  std::uint64_t successes = 0;
  std::uint64_t unknown = 0;
  std::set<std::uint64_t> seen;
  for (const Job* job : jobs) {
    REQUIRE(job->ends == 1);
    successes += job->code == ErrorCode::ok ? 1 : 0;
    unknown += job->code == ErrorCode::outcome_unknown ? 1 : 0;
    if (job->code == ErrorCode::ok) CHECK(seen.insert(job->before - start).second);
  }
  const std::uint64_t added = world[1].word(k_word) - start;
  CHECK(added >= successes);
  CHECK(added <= successes + unknown);
  if (!seen.empty()) CHECK(*seen.rbegin() < added);
}

}  // namespace

TEST_CASE("a fetch_add gives the value before; many give every value once (F21)") {
  for (const bool fabric : {false, true}) {
    PeerWorld world(21, 2, fabric);
    world.meet(0, 1);
    const std::uint64_t start = world[1].word(k_word);
    std::vector<Job*> jobs;
    for (int i = 0; i < 300; ++i) jobs.push_back(&world[0].add(world[1], k_word));
    REQUIRE(world.run([&] { return world[0].ends == 300; }));
    for (const Job* job : jobs) CHECK(job->code == ErrorCode::ok);
    CHECK(world[1].word(k_word) == start + 300);
    check_sum(world, start, jobs);
  }
}

TEST_CASE("what the target refuses ends with its reason and changes nothing") {
  PeerWorld world(22);
  world.meet(0, 1);
  const auto image = world[1].memory;
  Job& unaligned = world[0].add(world[1], k_word + 4);
  Job& outside = world[0].add(world[1], k_memory_bytes);
  world[1].region.token.low ^= 1U;
  Job& denied = world[0].add(world[1], k_word);
  REQUIRE(world.run([&] { return world[0].ends == 3; }));
  CHECK(unaligned.code == ErrorCode::unaligned);
  CHECK(outside.code == ErrorCode::out_of_range);
  CHECK(denied.code == ErrorCode::access_denied);
  CHECK(image == world[1].memory);
  CHECK(world[0].links_up(1) == 1);
}

TEST_CASE("H2 S5: the answer is lost with its link: asked again, answered, never executed twice") {
  std::uint64_t reconnects = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, seed % 3 == 0);
    world.meet(0, 1);
    const std::uint64_t start = world[1].word(k_word);
    std::vector<Job*> jobs;
    for (int round = 0; round < 5; ++round) {
      // Nothing comes back, so that whatever is executed is executed unanswered; then every connection breaks.
      world.world.clog(world[1].port, world[0].port, milliseconds(40));
      for (int i = 0; i < 5; ++i) jobs.push_back(&world[0].add(world[1], k_word));
      world.world.run_for(milliseconds(5));
      world.world.reset(world[0].port, world[1].port);
      REQUIRE(world.run([&] { return world[0].ends == jobs.size(); }));
      world.world.run_for(milliseconds(1500));  // the link proves itself, so that its backoff stays short
    }
    for (const Job* job : jobs) CHECK(job->code == ErrorCode::ok);
    CHECK(world[1].word(k_word) == start + jobs.size());
    check_sum(world, start, jobs);
    reconnects += world[0].counters.link_failures;
  }
  CHECK(reconnects >= 150);
}

TEST_CASE("H5: the deadline of an executed atomic whose answer is lost: the value is asked for, not denied") {
  PeerWorld world(23);
  world.meet(0, 1);
  const std::uint64_t start = world[1].word(k_word);
  const std::uint32_t dials = world[0].dials() + world[1].dials();
  world.world.clog(world[1].port, world[0].port, milliseconds(100));
  Job& job = world[0].add(world[1], k_word, 1, milliseconds(50));
  world.world.run_for(milliseconds(20));
  CHECK(world[1].word(k_word) == start + 1);
  world.world.reset(world[0].port, world[1].port);
  REQUIRE(world.run([&] { return job.ended(); }));
  CHECK(job.code == ErrorCode::ok);
  CHECK(job.before == start);
  CHECK(world[1].word(k_word) == start + 1);
  // The handshake in which this was settled dialled nothing of its own: such a hello would deny the link being opened.
  world.world.run_for(seconds(1));
  CHECK(world[0].dials() + world[1].dials() == dials + 1);
}

TEST_CASE("the deadline of an atomic that was not executed: DEADLINE_EXCEEDED, and it never is") {
  PeerWorld world(24);
  world.meet(0, 1);
  const std::uint64_t start = world[1].word(k_word);
  world.world.pause(world[1].port, milliseconds(900));
  Job& job = world[0].add(world[1], k_word, 1, milliseconds(50));
  world.world.run_for(milliseconds(20));
  world.world.reset(world[0].port, world[1].port);
  REQUIRE(world.run([&] { return job.ended(); }));
  CHECK(job.code == (world[1].word(k_word) == start ? ErrorCode::deadline_exceeded : ErrorCode::ok));
  const std::uint64_t after = world[1].word(k_word);
  world.world.run_for(seconds(10));
  CHECK(world[1].word(k_word) == after);
}

TEST_CASE("S14: the target dies with an atomic unanswered: OUTCOME_UNKNOWN; with one that was never sent: not") {
  PeerWorld world(25);
  world[0].services->tx_depth = 1;
  world.meet(0, 1);
  world.world.clog(world[1].port, world[0].port, seconds(60));
  Job& asked = world[0].add(world[1], k_word);
  Job& unsent = world[0].add(world[1], k_word);
  world.world.run_for(milliseconds(20));
  SUBCASE("and stays dead: the lease ends it") { world.kill(1); }
  SUBCASE("and lives again: its successor knows nothing of it") {
    world.kill(1);
    world.born(1);
  }
  REQUIRE(world.run([&] { return asked.ended() && unsent.ended(); }));
  CHECK(asked.code == ErrorCode::outcome_unknown);
  CHECK(unsent.code == ErrorCode::peer_lost);
}

TEST_CASE("the session is lost and the life goes on: the next session still learns what was executed") {
  for (const bool executed : {true, false}) {
    CAPTURE(executed);
    PeerWorld world(26);
    world.meet(0, 1);
    const std::uint64_t start = world[1].word(k_word);
    const auto [from, to] = executed ? std::pair(1, 0) : std::pair(0, 1);
    // Longer than the lease (2 s), and over within the lease that the atomic has after it.
    world.world.clog(world[from].port, world[to].port, milliseconds(2500));
    Job& job = world[0].add(world[1], k_word);
    REQUIRE(world.run([&] { return job.ended(); }));
    REQUIRE_FALSE(world[0].downs.empty());
    CHECK(job.code == (executed ? ErrorCode::ok : world[0].downs.front()));
    if (executed) CHECK(job.before == start);
    CHECK(world[1].word(k_word) == start + (executed ? 1 : 0));
    world.world.run_for(seconds(10));
    CHECK(world[1].word(k_word) == start + (executed ? 1 : 0));
    // The next one knows of no trouble.
    world.meet(0, 1);
    Job& next = world[0].add(world[1], k_word);
    REQUIRE(world.run([&] { return next.ended(); }));
    CHECK(next.code == ErrorCode::ok);
  }
}

TEST_CASE("the question itself is lost, again and again: that proves nothing about what it asks for") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed);
    world.meet(0, 1);
    const std::uint64_t start = world[1].word(k_word);
    world.world.clog(world[1].port, world[0].port, milliseconds(2300));
    Job& job = world[0].add(world[1], k_word);
    REQUIRE(world.run([&] { return !world[0].downs.empty(); }));
    for (int i = 0; i < 3; ++i) {
      REQUIRE(world.run([&] { return job.ended() || world[0].links_up(1) > 0; }));
      world.world.reset(world[0].port, world[1].port);
    }
    REQUIRE(world.run([&] { return job.ended(); }));
    CHECK(world[1].word(k_word) == start + 1);
    CHECK((job.code == ErrorCode::ok || job.code == ErrorCode::outcome_unknown));
    if (job.code == ErrorCode::ok) CHECK(job.before == start);
  }
}

TEST_CASE("a window that is full holds atomics back until older ones are answered") {
  for (const std::uint32_t theirs : {3U, 1U}) {  // as large as ours, and smaller: BUSY
    CAPTURE(theirs);
    PeerWorld world(27);
    world[0].services->atomic_window = 3;
    world[1].services->atomic_window = theirs;
    world.meet(0, 1);
    const std::uint64_t start = world[1].word(k_word);
    std::vector<Job*> jobs;
    for (int i = 0; i < 100; ++i) jobs.push_back(&world[0].add(world[1], k_word));
    REQUIRE(world.run([&] { return world[0].ends == 100; }));
    for (const Job* job : jobs) CHECK(job->code == ErrorCode::ok);
    CHECK(world[1].word(k_word) == start + 100);
    check_sum(world, start, jobs);
  }
}

TEST_CASE("a flush ends after the atomics before it") {
  PeerWorld world(28);
  world.meet(0, 1);
  Job& add = world[0].add(world[1], k_word);
  Job& flush = world[0].flush(world[1]);
  REQUIRE(world.run([&] { return flush.ended(); }));
  CHECK(add.ended());
  CHECK(flush.order > add.order);
}

TEST_CASE("S7: an atomic begins behind the fence before it, and what is behind the next one waits for the atomic") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, seed % 2 == 0);
    world.meet(0, 1);
    const std::uint64_t start = world[1].word(k_word);
    const std::uint64_t after = world[1].word(k_word + 8);
    const bool apart = seed % 2 == 1;  // the fence is known for long when the atomic comes
    if (apart) world.world.clog(world[0].port, world[1].port, milliseconds(20));
    Job& put = world[0].put(world[1], 8192, 300'000);
    Job& first_fence = world[0].fence(world[1]);
    if (apart) world.world.run_for(milliseconds(5));
    REQUIRE_FALSE(put.ended());
    Job& add = world[0].add(world[1], k_word);
    Job& second_fence = world[0].fence(world[1]);
    Job& behind = world[0].add(world[1], k_word + 8);
    while (!behind.ended()) {
      if (!put.ended()) REQUIRE(world[1].word(k_word) == start);
      if (!add.ended()) REQUIRE(world[1].word(k_word + 8) == after);
      REQUIRE(world.world.step());
    }
    CHECK(put.order < first_fence.order);
    CHECK(first_fence.order < add.order);
    CHECK(add.order < second_fence.order);
    CHECK(second_fence.order < behind.order);
    CHECK(add.before == start);
    CHECK(behind.code == ErrorCode::ok);
  }
}

TEST_CASE("cancel of an atomic that never left, behind a fence or not: CANCELLED, and it is never executed") {
  for (const bool fenced : {true, false}) {
    CAPTURE(fenced);
    PeerWorld world(29);
    world.meet(0, 1);
    const std::uint64_t start = world[1].word(k_word);
    Job& put = world[0].put(world[1], 8192, 300'000);
    if (fenced) world.world.clog(world[0].port, world[1].port, milliseconds(100));
    if (fenced) world[0].fence(world[1]);
    Job& add = world[0].add(world[1], k_word);
    if (fenced) world.world.run_for(milliseconds(1));
    REQUIRE_FALSE(put.ended());
    world[0].to(1).cancel(add.operation);
    CHECK_FALSE(add.ended());  // never told inline
    world[0].wake();
    REQUIRE(world.run([&] { return add.ended(); }, milliseconds(1)));
    CHECK(add.code == ErrorCode::cancelled);
    world.world.run_for(seconds(5));
    CHECK(world[1].word(k_word) == start);
    CHECK(add.ends == 1);
    // Its number, had it one, holds up nobody.
    Job& next = world[0].add(world[1], k_word);
    REQUIRE(world.run([&] { return next.ended(); }));
    CHECK(next.before == start);
  }
}

TEST_CASE("cancel of an atomic that has left: its value, or CANCELLED and never executed, or OUTCOME_UNKNOWN") {
  std::size_t successes = 0;
  std::size_t cancelled = 0;
  std::size_t unknown = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, seed % 3 == 0);
    world.meet(0, 1);
    const std::uint64_t start = world[1].word(k_word);
    const bool deaf = seed % 4 == 0;     // the question does not arrive
    const bool mute = seed % 4 == 1;     // or its answer does not
    const bool deadly = seed % 10 == 3;  // or the target dies
    if (deaf) world.world.clog(world[0].port, world[1].port, seconds(1));
    if (mute || deadly) world.world.clog(world[1].port, world[0].port, seconds(1));
    Job& add = world[0].add(world[1], k_word);
    world.world.run_for(std::chrono::microseconds(50 * seed));
    if (!add.ended()) world[0].to(1).cancel(add.operation);
    world[0].wake();
    if (deadly) world.kill(1);
    REQUIRE(world.run([&] { return add.ended(); }, seconds(10)));
    if (deadly) {
      unknown += add.code == ErrorCode::outcome_unknown ? 1 : 0;
      CHECK((add.code != ErrorCode::ok || add.before == start));  // the fabric may have been faster
      continue;
    }
    world.world.run_for(seconds(5));
    CHECK(add.ends == 1);
    CHECK((add.code == ErrorCode::ok || add.code == ErrorCode::cancelled));
    CHECK(world[1].word(k_word) == start + (add.code == ErrorCode::ok ? 1 : 0));
    if (add.code == ErrorCode::ok) CHECK(add.before == start);
    (add.code == ErrorCode::ok ? successes : cancelled) += 1;
  }
  CHECK(successes > 0);
  CHECK(cancelled > 0);
  CHECK(unknown > 0);
}

TEST_CASE("numbers: acknowledged in order whatever the order of answers, and never more than the window holds") {
  AtomicNumbers numbers(4);
  for (AtomicSeq n = 1; n <= 4; ++n) CHECK(numbers.take() == n);
  CHECK(numbers.take() == 0);
  numbers.release(3);
  CHECK(numbers.acked_upto() == 0);
  CHECK(numbers.take() == 0);
  numbers.release(1);
  CHECK(numbers.acked_upto() == 1);
  CHECK(numbers.take() == 5);
  CHECK(numbers.take() == 0);
  numbers.release(2);
  CHECK(numbers.acked_upto() == 3);
  numbers.narrow(5, 3);  // had no room for the second one
  CHECK(numbers.take() == 0);
  numbers.release(4);
  numbers.release(5);
  CHECK(numbers.take() == 6);
  CHECK(numbers.take() == 0);
  numbers.reset();
  CHECK(numbers.take() == 1);
}
