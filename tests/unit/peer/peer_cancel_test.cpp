// SPDX-License-Identifier: Apache-2.0
//
// Cancelling an operation at every stage: it ends by the one door (R6), once, with the truth, and no byte moves later.
#include "peer_world.hpp"

using namespace hixl;
using namespace hixl::peer::test;

namespace {

bool same(const Life& a, const Life& b, std::uint64_t at, std::uint64_t size) {
  return std::memcmp(a.memory.data() + at, b.memory.data() + at, size) == 0;
}

/// Nothing changes at the target any more.
void check_calm(PeerWorld& world) {
  const auto image = world[1].memory;
  world.world.run_for(seconds(5));
  CHECK(image == world[1].memory);
}

}  // namespace

TEST_CASE("cancel before anything was posted: at once, and nothing moves") {
  PeerWorld world(31);
  world.meet(0, 1);
  const auto before = world[1].memory;
  Job* job = nullptr;
  SUBCASE("a put") { job = &world[0].put(world[1], 0, 100'000); }
  SUBCASE("a get") { job = &world[0].get(world[1], 0, 100'000); }
  SUBCASE("a put with a signal") { job = &world[0].put(world[1], 64, 100'000, seconds(30), 5); }
  SUBCASE("a flush") {
    world.world.clog(world[0].port, world[1].port, milliseconds(100));
    world[0].put(world[1], 0, 0);
    job = &world[0].flush(world[1]);
  }
  world[0].to(1).cancel(job->operation);
  CHECK_FALSE(job->ended());  // never told inline
  world[0].wake();
  REQUIRE(world.run([&] { return job->ended(); }, milliseconds(1)));
  CHECK(job->code == ErrorCode::cancelled);
  CHECK(job->error.detail.limit == 0);
  world.world.run_for(seconds(1));
  CHECK(before == world[1].memory);
  CHECK(world[0].links_up(1) == 1);
}

TEST_CASE("cancel of a put of which a part is posted: it ends when the target has told what it executed") {
  for (std::uint64_t seed = 40; seed < 60; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, seed % 2 == 0);
    world[0].services->tx_depth = 2;  // 15 chunks, so most are not posted yet
    world.meet(0, 1);
    Job& put = world[0].put(world[1], 0, 900'000, seconds(30), 0);
    world.world.run_for(std::chrono::microseconds(200 * (seed - 40)));
    if (put.ended()) continue;
    world[0].to(1).cancel(put.operation);
    world[0].to(1).cancel(put.operation);  // asked twice: no effect
    REQUIRE(world.run([&] { return put.ended(); }, seconds(5)));
    CHECK((put.code == ErrorCode::cancelled || put.code == ErrorCode::ok));
    if (put.code == ErrorCode::ok) CHECK(same(world[0], world[1], 0, 900'000));
    check_calm(world);
    CHECK(put.ends == 1);
  }
}

TEST_CASE("cancel when everything is posted: success if it was executed, and only then") {
  std::size_t successes = 0;
  std::size_t cancelled = 0;
  for (std::uint64_t seed = 60; seed < 100; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, seed % 3 == 0);
    world.meet(0, 1);
    const bool signals = seed % 2 == 0;
    const bool clogged = seed % 4 < 2;
    const std::uint64_t before = world[1].word(0);
    if (clogged) world.world.clog(world[0].port, world[1].port, seconds(1));
    Job& put = world[0].put(world[1], 64, 1000, seconds(30), signals ? 7 : 0);
    world.world.run_for(std::chrono::microseconds(clogged ? 2000 : 20 * (seed - 60)));
    if (put.ended()) continue;
    world[0].to(1).cancel(put.operation);
    REQUIRE(world.run([&] { return put.ended(); }, seconds(10)));
    check_calm(world);
    const bool signalled = world[1].word(0) == before + 7;
    if (put.code == ErrorCode::ok) {
      successes += 1;
      CHECK(same(world[0], world[1], 64, 1000));
      CHECK(signalled == signals);
    } else {
      cancelled += 1;
      CHECK(put.code == ErrorCode::cancelled);
      CHECK_FALSE((same(world[0], world[1], 64, 1000) && signalled == signals));
    }
  }
  CHECK(successes > 0);
  CHECK(cancelled > 0);
}

TEST_CASE("cancel of a get whose answer is under way takes it back: its memory is free at once") {
  PeerWorld world(32);
  world.meet(0, 1);
  world.world.clog(world[0].port, world[1].port, seconds(1));
  Job& get = world[0].get(world[1], 1000, 50'000);
  world.world.run_for(milliseconds(5));
  REQUIRE_FALSE(get.ended());
  world[0].to(1).cancel(get.operation);
  world[0].wake();
  REQUIRE(world.run([&] { return get.ended(); }, milliseconds(1)));
  CHECK(get.code == ErrorCode::cancelled);
  const auto image = world[0].memory;
  world.world.run_for(seconds(5));
  CHECK(image == world[0].memory);
}

TEST_CASE("cancel of one that waits for its fence, or for a peer that nobody reaches") {
  PeerWorld world(33);
  world.meet(0, 1);
  SUBCASE("its deadline is over: it stays with that end") {
    world.world.clog(world[0].port, world[1].port, seconds(1));
    Job& put = world[0].put(world[1], 64, 100, milliseconds(20));
    world.world.run_for(milliseconds(50));
    REQUIRE_FALSE(put.ended());
    world[0].to(1).cancel(put.operation);
    REQUIRE(world.run([&] { return put.ended(); }));
    CHECK((put.code == ErrorCode::deadline_exceeded || put.code == ErrorCode::ok));
    check_calm(world);
  }
  SUBCASE("the link is broken, and the target alone knows") {
    world.world.pause(world[1].port, milliseconds(500));
    Job& put = world[0].put(world[1], 64, 50'000);
    world.world.run_for(milliseconds(20));
    world.world.reset(world[0].port, world[1].port);
    world.world.run_for(milliseconds(1));
    REQUIRE_FALSE(put.ended());
    world[0].to(1).cancel(put.operation);
    CHECK_FALSE(put.ended());
    REQUIRE(world.run([&] { return put.ended(); }));
    CHECK((put.code == ErrorCode::cancelled || put.code == ErrorCode::ok));
    if (put.code == ErrorCode::ok) CHECK(same(world[0], world[1], 64, 50'000));
    check_calm(world);
  }
}

TEST_CASE("what a cancelled operation held is given to those who wait") {
  PeerWorld world(34);
  world[0].services->tx_depth = 1;
  world.meet(0, 1);
  world.world.clog(world[0].port, world[1].port, milliseconds(200));
  Job& first = world[0].get(world[1], 0, 100);
  world.world.run_for(milliseconds(1));
  Job& second = world[0].get(world[1], 1000, 100);
  world[0].to(1).cancel(first.operation);
  world[0].wake();
  REQUIRE(world.run([&] { return second.ended(); }));
  CHECK(first.code == ErrorCode::cancelled);
  CHECK(second.code == ErrorCode::ok);
}
