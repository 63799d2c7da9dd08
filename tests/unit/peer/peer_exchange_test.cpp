// SPDX-License-Identifier: Apache-2.0
//
// Exchange of addresses: any order, any number, many regions, in time.
#include <algorithm>

#include "peer_world.hpp"
#include "stranger.hpp"

using namespace hixl;
using namespace hixl::peer::test;

namespace {

/// Descriptors of regions that nobody will touch.
std::vector<wire::RegionDescriptor> many(std::uint32_t count) {
  std::vector<wire::RegionDescriptor> regions;
  for (std::uint32_t id = 1; id <= count; ++id) {
    regions.push_back({.key = {.id = id, .generation = 1},
                       .token = {.high = id, .low = 2},
                       .base = std::uint64_t{id} << 20U,
                       .length = 4096,
                       .rights = Rights::all,
                       .tag = id});
  }
  return regions;
}

}  // namespace

TEST_CASE("exchanges meet in any order, each with the next one of the other side") {
  PeerWorld world(41);
  auto tagged = [&](Rank rank, std::uint32_t tag) {
    auto region = world[rank].region;
    region.tag = tag;
    return std::vector{region};
  };
  std::vector<ExchangeJob*> here;
  std::vector<ExchangeJob*> there;
  for (std::uint32_t i = 0; i < 5; ++i) here.push_back(&world[0].exchange(world[1], tagged(0, 100 + i)));
  world.world.run_for(seconds(1));
  for (const auto* job : here) CHECK(job->ends == 0);
  for (std::uint32_t i = 0; i < 5; ++i) {
    there.push_back(&world[1].exchange(world[0], tagged(1, 200 + i)));
    world.world.run_for(milliseconds(300));
  }
  REQUIRE(world.run([&] { return here.back()->ends > 0 && there.back()->ends > 0; }));
  for (std::uint32_t i = 0; i < 5; ++i) {
    REQUIRE(here[i]->answer.result.has_value());
    REQUIRE(there[i]->answer.result.has_value());
    CHECK(here[i]->ends == 1);
    CHECK(here[i]->answer.regions.front().tag == 200 + i);
    CHECK(there[i]->answer.regions.front().tag == 100 + i);
  }
}

TEST_CASE("three thousand regions, and none at all") {
  PeerWorld world(42);
  auto& here = world[0].exchange(world[1], many(3000));
  auto& there = world[1].exchange(world[0], std::vector<wire::RegionDescriptor>{});
  REQUIRE(world.run([&] { return here.ends > 0 && there.ends > 0; }));
  REQUIRE(here.answer.result.has_value());
  REQUIRE(there.answer.result.has_value());
  CHECK(here.answer.regions.empty());
  REQUIRE(there.answer.regions.size() == 3000);
  for (std::uint32_t i = 0; i < 3000; ++i) REQUIRE(there.answer.regions[i].tag == i + 1);
  CHECK(world[1].directory->memory(0)->remotes.size() == 3000);
}

TEST_CASE("frames that are lost with their link come again") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed);
    world.lease(seconds(60));  // of links that break again and again the next dial may wait for long
    runtime::FaultPlan plan;
    plan.reset_per_mille = 40;
    plan.pipe_bytes = 32U << 10U;
    world.world.set_plan(plan);
    auto& here = world[0].exchange(world[1], many(3000), seconds(120));
    auto& there = world[1].exchange(world[0], many(3000), seconds(120));
    REQUIRE(world.run([&] { return here.ends > 0 && there.ends > 0; }, seconds(150)));
    REQUIRE(here.answer.result.has_value());
    REQUIRE(there.answer.result.has_value());
    CHECK(here.answer.regions.size() == 3000);
    CHECK(there.answer.regions.size() == 3000);
  }
}

TEST_CASE("an exchange ends at its deadline, however many others are made meanwhile") {
  PeerWorld world(43);
  auto& first = world[0].exchange(world[1], {}, milliseconds(50));
  const Instant start = world.world.now();
  auto& second = world[0].exchange(world[1], {}, milliseconds(500));
  for (int i = 0; i < 20; ++i) {
    world[0].exchange(world[1], {}, seconds(20));
    world.world.run_for(milliseconds(50));
  }
  REQUIRE(first.ends == 1);
  REQUIRE(second.ends == 1);
  CHECK(first.answer.result.error().code == ErrorCode::deadline_exceeded);
  CHECK(first.ended_at - start <= milliseconds(52));
  CHECK(second.ended_at - start <= milliseconds(502));
}

TEST_CASE("the one behind an exchange that ran out of time is served at once") {
  PeerWorld world(44);
  auto& early = world[0].exchange(world[1], {}, milliseconds(100));
  auto& late = world[0].exchange(world[1], {}, seconds(60));
  auto& there = world[1].exchange(world[0]);
  REQUIRE(world.run([&] { return there.ends > 0; }));
  REQUIRE(world.run([&] { return early.ends > 0; }));
  auto& again = world[1].exchange(world[0]);
  REQUIRE(world.run([&] { return late.ends > 0 && again.ends > 0; }, seconds(5)));
  CHECK(late.answer.result.has_value());
}

TEST_CASE("an exchange says which region was not accepted here and why, and the others are there") {
  PeerWorld world(48);
  const std::uint32_t limit = world[0].services->regions_max;
  auto mine = many(3);
  mine[1].key.id = limit;
  auto& there = world[1].exchange(world[0], mine);
  auto& here = world[0].exchange(world[1]);
  REQUIRE(world.run([&] { return here.ends > 0 && there.ends > 0; }));
  CHECK(there.answer.result.has_value());  // nothing was wrong with what came from here
  REQUIRE_FALSE(here.answer.result.has_value());
  const Error error = here.answer.result.error();
  CHECK(error.code == ErrorCode::limit_reached);
  CHECK(error.detail.rank == 1);
  CHECK(error.detail.stage == Stage::exchange);
  CHECK(error.detail.address == mine[1].base);
  CHECK(error.detail.length == mine[1].length);
  CHECK(error.detail.limit == limit);
  REQUIRE(here.answer.regions.size() == 3);
  const memory::RemoteTable& known = world[0].known(world[1]).remotes;
  CHECK(known.size() == 2);
  for (const std::size_t i : {0, 2}) {
    CHECK(here.answer.regions[i].tag == mine[i].tag);
    CHECK(known.resolve(here.answer.regions[i].at(8), 8, Rights::write).has_value());
  }
  CHECK(known.resolve(here.answer.regions[1].at(8), 8, Rights::write).error().code == ErrorCode::not_registered);
  // The next one has nothing wrong.
  auto& again = world[0].exchange(world[1]);
  auto& fewer = world[1].exchange(world[0], many(1));
  REQUIRE(world.run([&] { return again.ends > 0 && fewer.ends > 0; }));
  CHECK(again.answer.result.has_value());
  CHECK(known.size() == 2);
}

TEST_CASE("more regions than this rank may know: as many as it may, and an error that names the first beyond") {
  PeerWorld world(49);
  const std::uint32_t limit = world[0].services->regions_max;
  const auto mine = many(limit + 2500);
  auto& there = world[1].exchange(world[0], mine);
  auto& here = world[0].exchange(world[1]);
  REQUIRE(world.run([&] { return here.ends > 0 && there.ends > 0; }, seconds(10)));
  CHECK(there.answer.result.has_value());
  REQUIRE_FALSE(here.answer.result.has_value());
  CHECK(here.answer.result.error().code == ErrorCode::limit_reached);
  CHECK(here.answer.result.error().detail.address == mine[limit].base);
  CHECK(here.answer.result.error().detail.limit == limit);
  CHECK(here.answer.regions.size() == limit);
  CHECK(world[0].known(world[1]).remotes.size() == limit - 1);  // ids begin at 0 elsewhere, at 1 here
}

TEST_CASE("exchanges that the peer never takes are bounded, and so are those that it sends") {
  PeerWorld world(45);
  std::vector<ExchangeJob*> jobs;
  for (std::size_t i = 0; i < peer::k_exchanges_open_max + 40; ++i) {
    jobs.push_back(&world[0].exchange(world[1], {world[0].region}, seconds(100)));
  }
  world.world.run_for(seconds(1));
  std::size_t refused = 0;
  for (const auto* job : jobs) {
    if (job->ends > 0) refused += job->answer.result.error().code == ErrorCode::busy ? 1 : 0;
  }
  CHECK(refused == 40);
  // Once rank 1 takes them, it goes on.
  std::size_t taken = 0;
  for (std::size_t i = 0; i < peer::k_exchanges_open_max; ++i) {
    auto& there = world[1].exchange(world[0]);
    REQUIRE(world.run([&] { return there.ends > 0; }, seconds(10)));
    taken += there.answer.result ? 1 : 0;
  }
  CHECK(taken == peer::k_exchanges_open_max);
}

TEST_CASE("exchanges of two groups meet those of the same group, whatever order each side calls them in") {
  PeerWorld world(46);
  const auto tagged = [&](Rank rank, std::uint32_t tag) {
    auto region = world[rank].region;
    region.tag = tag;
    return std::vector{region};
  };
  auto& first = world[0].exchange(world[1], tagged(0, 10), seconds(30), 1);
  auto& second = world[0].exchange(world[1], tagged(0, 20), seconds(30), 2);
  auto& none = world[0].exchange(world[1], tagged(0, 30));
  world.world.run_for(seconds(1));
  auto& there = world[1].exchange(world[0], tagged(1, 2), seconds(30), 2);
  REQUIRE(world.run([&] { return there.ends > 0 && second.ends > 0; }, seconds(5)));
  CHECK(second.answer.regions.front().tag == 2);
  CHECK(there.answer.regions.front().tag == 20);
  CHECK(first.ends + none.ends == 0);
  auto& in_none = world[1].exchange(world[0], tagged(1, 3));
  auto& in_first = world[1].exchange(world[0], tagged(1, 1), seconds(30), 1);
  REQUIRE(world.run([&] { return in_none.ends > 0 && in_first.ends > 0 && first.ends > 0 && none.ends > 0; }));
  CHECK(first.answer.regions.front().tag == 1);
  CHECK(in_first.answer.regions.front().tag == 10);
  CHECK(none.answer.regions.front().tag == 3);
  CHECK(in_none.answer.regions.front().tag == 30);
}

TEST_CASE("exchanges of groups that are no more do not take the room of others") {
  PeerWorld world(47);
  world[1].groups = {7};  // open here; nobody takes what comes for it either
  for (std::size_t i = 0; i < peer::k_exchanges_open_max + 40; ++i) {
    const auto& job = world[0].exchange(world[1], {world[0].region}, milliseconds(500), i % 2 == 0 ? 7 : 8 + i);
    REQUIRE(world.run([&] { return job.ends > 0; }));
    CHECK(job.answer.result.error().code == ErrorCode::deadline_exceeded);
  }
  auto& here = world[0].exchange(world[1]);
  auto& there = world[1].exchange(world[0]);
  REQUIRE(world.run([&] { return here.ends > 0 && there.ends > 0; }, seconds(10)));
  CHECK(here.answer.result.has_value());
  CHECK(there.answer.result.has_value());
}

TEST_CASE("a rank that comes back finds the regions of the others without their programs' help") {
  PeerWorld world(46);
  world.meet(0, 1);
  world.kill(1);
  world.born(1);
  world[1].to(0).prewarm({.deadline = k_never, .done = [](void*, const Result<void>&) {}});
  world[1].wake();
  REQUIRE(world.run([&] { return world[1].directory->memory(0)->remotes.size() == 1; }, seconds(5)));
  Job& put = world[1].put(world[0], 64, 1000);
  REQUIRE(world.run([&] { return put.ended(); }));
  CHECK(put.code == ErrorCode::ok);
  // What was told again answers no exchange: that still takes both programs, and gives what they say now.
  auto mine = world[0].region;
  mine.tag = 77;
  auto& here = world[0].exchange(world[1], {mine});
  auto& there = world[1].exchange(world[0]);
  REQUIRE(world.run([&] { return here.ends > 0 && there.ends > 0; }));
  REQUIRE(there.answer.result.has_value());
  CHECK(there.answer.regions.front().tag == 77);
}

TEST_CASE("a liar's exchange: numbers that skip, counts beyond the limit, acknowledgements of nothing") {
  PeerWorld world(47, 2, false, 1);
  Stranger liar(world, "liar");
  liar.say(world[0], Stranger::hello_to(world[0], 2, 99));
  REQUIRE(liar.welcome.has_value());
  world.world.run_for(milliseconds(10));
  liar.send(wire::FrameType::exchange_ack, wire::ExchangeAck{.number = ~std::uint64_t{0}});
  liar.send(wire::FrameType::exchange, wire::Exchange{.number = 77, .first = 0, .total = 1, .regions = many(1)});
  liar.send(wire::FrameType::exchange, wire::Exchange{.number = 1, .first = 5, .total = 6, .regions = many(1)});
  liar.send(wire::FrameType::exchange, wire::Exchange{.number = 1, .first = 0, .total = 1U << 20U, .regions = many(1)});
  world.world.run_for(milliseconds(100));
  CHECK_FALSE(liar.down);
  CHECK(world[0].directory->memory(2)->remotes.size() == 0);
  // Regions that are none are the peer's fault, not that of the call which waits for them.
  auto none = many(1);
  none.front().length = 0;
  Error told;
  world[0].to(2).exchange({}, {.deadline = world.world.now() + seconds(5),
                               .done =
                                   [](void* to, PeerAddresses&& answer) {
                                     if (!answer.result) *static_cast<Error*>(to) = answer.result.error();
                                   },
                               .context = &told});
  world[0].wake();
  world.world.run_for(milliseconds(10));
  liar.send(wire::FrameType::exchange_ack, wire::ExchangeAck{.number = 1});
  liar.send(wire::FrameType::exchange, wire::Exchange{.number = 1, .first = 1, .total = 2, .regions = none});
  REQUIRE(world.run([&] { return told.code != ErrorCode::ok; }, seconds(1)));
  CHECK(told.code == ErrorCode::malformed_frame);
  CHECK(told.detail.rank == 2);
  world.meet(0, 1);
}
