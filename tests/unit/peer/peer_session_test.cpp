// SPDX-License-Identifier: Apache-2.0
//
// Sessions and lives: who may connect, what ends when, and what works again afterwards.
#include "peer_world.hpp"

#include <algorithm>

using namespace hixl;
using namespace hixl::peer::test;

TEST_CASE("both dial at once: one link of each id stands, and no operation is lost (P33)") {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, seed % 2 == 0);
    runtime::FaultPlan plan;
    plan.delay_max = plan.delay_min * (1 + seed % 40);
    world.world.set_plan(plan);
    auto& one = world[0].exchange(world[1]);
    world.world.run_for(Duration(seed * 997 % 200'000));
    auto& other = world[1].exchange(world[0]);
    REQUIRE(world.run([&] { return one.ends > 0 && other.ends > 0; }));
    REQUIRE(one.answer.result.has_value());
    REQUIRE(other.answer.result.has_value());
    Job& a = world[0].put(world[1], 64, 1000);
    Job& b = world[1].put(world[0], 50'000, 1000);
    REQUIRE(world.run([&] { return a.ended() && b.ended(); }));
    REQUIRE(a.code == ErrorCode::ok);
    REQUIRE(b.code == ErrorCode::ok);
    const auto settled = [&] {
      return world[0].links_up(1) == world[0].factories.size() && world[1].links_up(0) == world[1].factories.size();
    };
    REQUIRE(world.run(settled, seconds(5)));
    world.world.run_for(seconds(2));
    REQUIRE(settled());
    const auto mine = world[0].links(1);
    const auto theirs = world[1].links(0);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      REQUIRE(mine[i].session == theirs[i].session);
      REQUIRE(mine[i].generation == theirs[i].generation);
    }
    REQUIRE(mine.front().session == 1);
    REQUIRE(world[0].downs.empty());
    REQUIRE(world[1].downs.empty());
  }
}

TEST_CASE("a new life ends the operations of the old one with PEER_LOST, and works") {
  PeerWorld world(21);
  world.meet(0, 1);
  const Incarnation old = world[1].services->incarnation;
  world.world.clog(world[0].port, world[1].port, seconds(1));
  Job& put = world[0].put(world[1], 64, 100'000, seconds(60));
  world.world.run_for(milliseconds(1));
  world.kill(1);
  world.born(1);
  CHECK(world[1].services->incarnation != old);
  REQUIRE(world.run([&] { return put.ended(); }));
  CHECK(put.code == ErrorCode::peer_lost);
  CHECK(world[0].downs == std::vector{ErrorCode::peer_lost});
  CHECK(world[0].counters.peers_lost == 1);
  world.meet(0, 1);
  Job& again = world[0].put(world[1], 64, 1000);
  REQUIRE(world.run([&] { return again.ended(); }));
  CHECK(again.code == ErrorCode::ok);
}

TEST_CASE("an exchange that was asked for after the end of a life is served by the next one") {
  PeerWorld world(22);
  world.meet(0, 1);
  world.kill(1);
  REQUIRE(world.run([&] { return !world[0].downs.empty(); }, seconds(10)));  // by lease
  auto& wait = world[0].exchange(*world.dead.back(), {world[0].region}, seconds(60));
  world.world.run_for(seconds(2));
  CHECK(wait.ends == 0);
  world.born(1);
  auto& other = world[1].exchange(world[0]);
  REQUIRE(world.run([&] { return wait.ends > 0 && other.ends > 0; }));
  CHECK(wait.answer.result.has_value());
  CHECK(wait.answer.regions.front().incarnation == world[1].services->incarnation);
}

TEST_CASE("a silent peer is lost by lease; when it comes back its own operations are FENCED and both are usable") {
  PeerWorld world(23);
  world.meet(0, 1);
  // Rank 1 hears and says nothing for longer than the lease, as after SIGSTOP.
  world.world.pause(world[1].port, seconds(4));
  Job& to_silent = world[0].put(world[1], 64, 1000, seconds(30));
  const Instant start = world.world.now();
  REQUIRE(world.run([&] { return to_silent.ended(); }));
  CHECK(to_silent.code == ErrorCode::peer_lost);
  CHECK(to_silent.ended_at - start >= milliseconds(1500));
  CHECK(to_silent.ended_at - start <= milliseconds(2500));
  Job& from_silent = world[1].put(world[0], 500'000, 1000, seconds(30));
  REQUIRE(world.run([&] { return from_silent.ended(); }));
  CHECK(from_silent.code == ErrorCode::fenced);
  REQUIRE(world.run([&] { return world[0].links_up(1) == 1 && world[1].links_up(0) == 1; }));
  CHECK(world[0].links(1).front().session > 1);
  world.meet(0, 1);
  Job& a = world[0].put(world[1], 64, 1000);
  Job& b = world[1].put(world[0], 64, 1000);
  REQUIRE(world.run([&] { return a.ended() && b.ended(); }));
  CHECK(a.code == ErrorCode::ok);
  CHECK(b.code == ErrorCode::ok);
}

TEST_CASE("a rank was given away while its holder stood still: the newer life stays, the zombie's work ends FENCED") {
  for (const bool heard_late : {false, true}) {
    CAPTURE(heard_late);
    PeerWorld world(33);
    world.meet(0, 1);
    world.world.pause(world[1].port, seconds(4));
    world.dead.push_back(std::move(world.lives[1]));
    Life& zombie = *world.dead.back();
    world.book_open = !heard_late;  // the hello of the newer life comes first
    world.born(1);
    auto& one = world[1].exchange(world[0]);
    if (heard_late) world[1].told(0, world[0]);
    auto& other = world[0].exchange(world[1]);
    REQUIRE(world.run([&] { return one.ends > 0 && other.ends > 0; }, seconds(3)));
    CHECK((one.answer.result.has_value() && other.answer.result.has_value()));
    world.book_open = true;
    Job& put = zombie.put(world[0], 64, 1000);
    Job& add = zombie.add(world[0], 8);
    auto& wait = zombie.exchange(world[0]);
    REQUIRE(world.run([&] { return put.ended() && add.ended() && wait.ends > 0; }, seconds(20)));
    CHECK(put.code == ErrorCode::fenced);
    CHECK((add.code == ErrorCode::fenced || add.code == ErrorCode::outcome_unknown));
    CHECK(wait.answer.result.error().code == ErrorCode::fenced);
    // And whatever it tries later, and whatever the book says late, the newer life is the rank.
    auto& again = zombie.exchange(world[0], seconds(60));
    world[0].told(1, zombie);
    world.world.run_for(seconds(50));
    REQUIRE(again.ends > 0);
    CHECK(again.answer.result.error().code == ErrorCode::fenced);
    CHECK(std::count(world[0].downs.begin(), world[0].downs.end(), ErrorCode::peer_lost) == 1);
    Job& works = world[0].put(world[1], 64, 1000);
    REQUIRE(world.run([&] { return works.ended(); }));
    CHECK(works.code == ErrorCode::ok);
  }
}

TEST_CASE("a put that was past its deadline when the lease ended says that nobody could be asked (R1 c)") {
  PeerWorld world(24);
  world.meet(0, 1);
  world.world.pause(world[1].port, seconds(10));
  Job& put = world[0].put(world[1], 64, 1000, milliseconds(1900));
  REQUIRE(world.run([&] { return put.ended(); }));
  CHECK(put.code == ErrorCode::peer_lost);  // not DEADLINE_EXCEEDED: the target may yet write it
}

TEST_CASE("a pause below the lease costs nothing, on either side") {
  PeerWorld world(25);
  world.meet(0, 1);
  for (int i = 0; i < 10; ++i) {
    world.world.pause(world[static_cast<Rank>(i % 2)].port, milliseconds(1300));
    world.world.run_for(seconds(2));
  }
  CHECK(world[0].downs.empty());
  CHECK(world[1].downs.empty());
  CHECK(world[0].links(1).front().session == 1);
}

TEST_CASE("S1, S4 who was late for a lease reads nothing of what was sent before it was given up") {
  for (std::uint64_t seed = 200; seed < 230; ++seed) {
    CAPTURE(seed);
    PeerWorld world(seed);
    world.meet(0, 1);
    world.world.pause(world[1].port, seconds(4));
    Job& put = world[0].put(world[1], 64, 100'000);
    Job& add = world[0].put(world[1], 200'000, 8, seconds(30), 1);
    REQUIRE(world.run([&] { return put.ended() && add.ended(); }));
    CHECK(put.code == ErrorCode::peer_lost);
    CHECK(add.code == ErrorCode::peer_lost);
    Job& own = world[1].put(world[0], 500'000, 1000);
    const std::vector<std::byte> before = world[1].memory;  // all of it lies in the socket
    REQUIRE(world.run([&] { return own.ended(); }));
    CHECK(own.code == ErrorCode::fenced);
    REQUIRE(world.run([&] { return world[0].links_up(1) == 1 && world[1].links_up(0) == 1; }));
    world.world.run_for(seconds(2));
    CHECK(world[1].memory == before);
    CHECK(world[1].downs == std::vector{ErrorCode::fenced});
    world.meet(0, 1);
    Job& works = world[0].put(world[1], 64, 1000);
    REQUIRE(world.run([&] { return works.ended(); }));
    CHECK(works.code == ErrorCode::ok);
  }
}

TEST_CASE("L5 nobody is lost by lateness alone: where the session still stands it goes on") {
  for (const bool fabric : {false, true}) {
    for (const bool both : {false, true}) {
      CAPTURE(fabric);
      CAPTURE(both);
      PeerWorld world(240, 2, fabric);
      world.meet(0, 1);
      for (int i = 0; i < 5; ++i) {
        // Both: as when the host of all is suspended. One: for almost as long as the other one waits for it.
        world.world.pause(world[1].port, both ? seconds(8) : milliseconds(1850));
        if (both) world.world.pause(world[0].port, seconds(8));
        Job& put = world[0].put(world[1], 64, 100'000, seconds(60), 1);
        Job& get = world[1].get(world[0], 200'000, 1000, seconds(60));
        REQUIRE(world.run([&] { return put.ended() && get.ended(); }));
        CHECK(put.code == ErrorCode::ok);
        CHECK(get.code == ErrorCode::ok);
        world.world.run_for(seconds(3));
      }
      CHECK(world[0].downs.empty());
      CHECK(world[1].downs.empty());
      CHECK(world[0].links(1).front().session == 1);
      CHECK(world[1].links(0).front().generation > 5);  // it did ask, each time
    }
  }
}

TEST_CASE("our own late loop is no sign of the peer's death") {
  PeerWorld world(26);
  world.meet(0, 1);
  world.world.pause(world[0].port, milliseconds(3500));  // beyond the lease: rank 1 gives rank 0 up, not the reverse
  world.world.run_for(seconds(4));
  CHECK(std::count(world[0].downs.begin(), world[0].downs.end(), ErrorCode::peer_lost) == 0);
}

TEST_CASE("goodbye: open operations end with PEER_GONE, later ones wait for the next life") {
  PeerWorld world(27);
  world.meet(0, 1);
  Job& get = world[0].get(world[1], 64, 100);
  world[1].directory->stop(world.world.now() + seconds(5));
  world[1].wake();
  world.world.run_for(milliseconds(1));  // the goodbye leaves at the end of the turn
  REQUIRE(world.run([&] { return world[1].directory->stopped() && !world[0].downs.empty(); }, seconds(10)));
  CHECK(world[0].downs.front() == ErrorCode::peer_gone);
  REQUIRE(world.run([&] { return get.ended(); }));
  CHECK((get.code == ErrorCode::ok || get.code == ErrorCode::peer_gone));
}

TEST_CASE("a stop closes its regions some a turn, and says goodbye when the last one is closed") {
  PeerWorld world(34);
  world.meet(0, 1);
  constexpr std::size_t k_regions = 5000;
  for (std::size_t i = 0; i < k_regions; ++i) REQUIRE(world[1].regions->add(world[1].memory.data() + i, 64, {}));
  const auto open = [&] { return world[1].regions->list().size(); };
  world[1].directory->stop(world.world.now() + seconds(5));
  world[1].wake();
  std::size_t last = open();
  CHECK(last > k_regions / 2);
  std::size_t turns = 0;
  while (open() > 0 && ++turns < 1000) {
    CHECK(world[0].downs.empty());  // nobody has been told while one is open
    CHECK_FALSE(world[1].directory->stopped());
    REQUIRE(world.world.step());
    CHECK(last - open() <= 512);
    last = open();
  }
  CHECK(turns >= k_regions / 512);
  REQUIRE(world.run([&] { return world[1].directory->stopped() && !world[0].downs.empty(); }, seconds(1)));
  CHECK(world[0].downs == std::vector{ErrorCode::peer_gone});
}

TEST_CASE("a goodbye that no link could take is said at the door: PEER_GONE, long before the lease") {
  for (std::uint64_t seed = 100; seed < 200; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, seed % 2 == 0);
    world.meet(0, 1);
    world.world.reset(world[0].port, world[1].port);
    REQUIRE(world.run([&] { return world[1].links_up(0) == 0; }));
    Job& get = world[0].get(world[1], 64, 100);
    const Instant start = world.world.now();
    world[1].directory->stop(start + seconds(5));
    world[1].wake();
    REQUIRE(world.run([&] { return !world[0].downs.empty() && get.ended(); }, seconds(10)));
    CHECK(world[0].downs == std::vector{ErrorCode::peer_gone});
    CHECK(world.world.now() - start < seconds(1));
    CHECK(get.code == ErrorCode::peer_gone);
    CHECK(world.run([&] { return world[1].directory->stopped(); }, milliseconds(100)));
    // The life that left is not asked again; one that follows is.
    const std::uint32_t dials = world[0].dials();
    auto& wait = world[0].exchange(world[1], seconds(60));
    world.world.run_for(seconds(5));
    CHECK(world[0].dials() == dials);
    world.kill(1);
    world.born(1);
    auto& other = world[1].exchange(world[0]);
    REQUIRE(world.run([&] { return wait.ends > 0 && other.ends > 0; }));
    CHECK(wait.answer.result.has_value());
  }
}

TEST_CASE("a stop waits at the door for no longer than it may, and not at all for a peer that heard the goodbye") {
  for (const bool hurried : {false, true}) {
    PeerWorld world(30);
    world.meet(0, 1);
    world.kill(0);
    REQUIRE(world.run([&] { return world[1].links_up(0) == 0; }));
    const Instant start = world.world.now();
    world[1].directory->stop(hurried ? start : start + seconds(5));
    REQUIRE(world.run([&] { return world[1].directory->stopped(); }, seconds(2)));
    const Duration took = world.world.now() - start;
    CHECK((hurried ? took < milliseconds(10) : took >= seconds(1)));
  }
  PeerWorld world(31);
  world.meet(0, 1);
  const Instant start = world.world.now();
  world[1].directory->stop(start + seconds(5));
  REQUIRE(world.run([&] { return world[1].directory->stopped(); }, seconds(2)));
  CHECK(world.world.now() - start < milliseconds(10));
}

TEST_CASE("a stranger that says hello to a stopping rank is refused, and no actor is made for it") {
  PeerWorld world(32, 2);
  world[1].directory->stop(world.world.now() + seconds(5));
  auto& wait = world[0].exchange(world[1], seconds(5));
  REQUIRE(world.run([&] { return wait.ends > 0; }));
  CHECK(wait.answer.result.error().code == ErrorCode::peer_gone);  // the reason why the time passed in vain
  CHECK(world[1].directory->peers().empty());
  CHECK(world[0].dials() == 1);  // it was told once and believes it
}

TEST_CASE("an operation after stop() ends with STOPPED, not by its deadline") {
  PeerWorld world(28);
  world.meet(0, 1);
  world[0].directory->stop(world.world.now() + seconds(5));
  Job& put = world[0].put(world[1], 64, 100);
  auto& wait = world[0].exchange(world[1]);
  REQUIRE(world.run([&] { return put.ended() && wait.ends > 0; }, seconds(1)));
  CHECK(put.code == ErrorCode::stopped);
  CHECK(wait.answer.result.error().code == ErrorCode::stopped);
}

TEST_CASE("a peer that refuses every connection is dialled seldom, and never given up (L4)") {
  PeerWorld world(29);
  world[1].listener.reset();
  world[0].exchange(world[1], {world[0].region}, seconds(300));
  std::uint32_t last = 0;
  std::uint32_t most_a_second = 0;
  std::uint32_t in_first_minute = 0;
  for (int second = 0; second < 60; ++second) {
    world.world.run_for(seconds(1));
    const std::uint32_t tries = world[0].dials();
    most_a_second = std::max(most_a_second, tries - last);
    last = in_first_minute = tries;
  }
  CHECK(most_a_second <= 20);  // one each 50 ms at the very first
  CHECK(in_first_minute >= 5);
  CHECK(in_first_minute <= 60);
  world.world.run_for(seconds(60));
  CHECK(world[0].dials() > in_first_minute);
}

TEST_CASE("S57 a link that breaks as soon as it is up is dialled ever more seldom (no storm)") {
  PeerWorld world(30);
  world.meet(0, 1);
  const std::uint32_t before = world[0].dials() + world[1].dials();
  for (int i = 0; i < 6000; ++i) {  // a minute
    world.world.run_for(milliseconds(10));
    world.world.reset(world[0].port, world[1].port);
  }
  const std::uint32_t tries = world[0].dials() + world[1].dials() - before;
  MESSAGE("dials in a minute: ", tries);
  CHECK(tries <= 120);
  CHECK(tries >= 5);
  // And it comes back when the network is well.
  REQUIRE(world.run([&] { return world[0].links_up(1) == 1; }, seconds(40)));
  world.world.run_for(seconds(2));
  const Instant broken = world.world.now();
  world.world.reset(world[0].port, world[1].port);
  world.world.run_for(milliseconds(1));
  REQUIRE(world.run([&] { return world[0].links_up(1) == 1 && world[1].links_up(0) == 1; }, seconds(40)));
  CHECK(world.world.now() - broken < milliseconds(700));
}

TEST_CASE("a dial that hangs while the lease runs leaves time for another") {
  PeerWorld world(29);
  world.meet(0, 1);
  runtime::FaultPlan plan;
  plan.connect_lost_per_mille = 1000;
  world.world.set_plan(plan);
  const std::uint32_t before[] = {world[0].dials(), world[1].dials()};
  world.world.reset(world[0].port, world[1].port);
  const auto dialled = [&](Rank rank) { return world[rank].dials() > before[rank]; };
  REQUIRE(world.run([&] { return dialled(0) && dialled(1); }, seconds(1)));
  world.world.set_plan({});
  REQUIRE(world.run([&] { return world[0].links_up(1) == 1 && world[1].links_up(0) == 1; }, seconds(5)));
  CHECK(world[0].downs.empty());
  CHECK(world[1].downs.empty());
}
