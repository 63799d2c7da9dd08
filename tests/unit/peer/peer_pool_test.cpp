// SPDX-License-Identifier: Apache-2.0
//
// Several links to one peer: how they share the work, what a silent or broken one costs, and how it comes back. All
// times are virtual, so they may be asserted.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "peer_world.hpp"

using namespace hixl;
using namespace hixl::peer;
using namespace hixl::peer::test;

namespace {

constexpr std::uint64_t k_whole = k_memory_bytes;

void fill(std::vector<std::byte>& memory, std::uint64_t salt) {
  for (std::size_t i = 0; i + 8 <= memory.size(); i += 8) {
    const std::uint64_t word = (i + salt) * 0x9e3779b97f4a7c15U;
    std::memcpy(memory.data() + i, &word, sizeof(word));
  }
}

LinkInfo row(Life& life, Rank to, std::uint32_t index) {
  for (const LinkInfo& link : life.links(to)) {
    if (link.id == 10 + index) return link;
  }
  FAIL("no such link");
  return {};
}

/// Puts everything `times` times; the virtual time that it took.
Duration stream(PeerWorld& world, int times) {
  const Instant begin = world.world.now();
  std::vector<Job*> jobs;
  for (int i = 0; i < times; ++i) jobs.push_back(&world[0].put(world[1], 0, k_whole));
  REQUIRE(
      world.run([&] { return std::all_of(jobs.begin(), jobs.end(), [](const Job* job) { return job->ended(); }); }));
  for (const Job* job : jobs) REQUIRE(job->code == ErrorCode::ok);
  return world.world.now() - begin;
}

void settle_links(PeerWorld& world, std::size_t links) {
  world.meet(0, 1);
  REQUIRE(world.run([&] { return world[0].links_up(1) == links && world[1].links_up(0) == links; }));
}

}  // namespace

TEST_CASE("F88 P11 two links share one transfer, and its bytes are whole") {
  PeerWorld world(11, 2, false, 0, {.tcp_links = 2});
  settle_links(world, 2);
  fill(world[0].memory, 1);
  stream(world, 8);
  CHECK(world[1].memory == world[0].memory);
  const std::uint64_t a = row(world[0], 1, 0).bytes_out;
  const std::uint64_t b = row(world[0], 1, 1).bytes_out;
  CHECK(a + b == 8 * k_whole);
  CHECK(std::min(a, b) > 2 * k_whole);
  CHECK(row(world[0], 1, 0).chosen);
  CHECK(row(world[0], 1, 1).chosen);
}

TEST_CASE(
    "P11 S6 links of different kinds share one transfer, and its signal comes after all bytes, whoever carried them") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, true, 0, {.tcp_links = 2, .pooling = Pooling::all_kinds});
    settle_links(world, 3);
    fill(world[0].memory, seed);
    const std::uint64_t before = world[1].word(0);
    for (std::uint64_t round = 1; round <= 8; ++round) {
      Job& put = world[0].put(world[1], 64, k_whole - 64, seconds(30), 1);
      REQUIRE(world.run([&] { return world[1].word(0) == before + round; }));
      CHECK(std::equal(world[0].memory.begin() + 64, world[0].memory.end(), world[1].memory.begin() + 64));
      REQUIRE(world.run([&] { return put.ended(); }));
      CHECK(put.code == ErrorCode::ok);
      std::fill(world[1].memory.begin() + 64, world[1].memory.end(), std::byte{0});
    }
    for (const LinkInfo& link : world[0].links(1)) {
      CHECK(link.bytes_out > 0);
      CHECK(link.chosen);
    }
  }
}

TEST_CASE("links with limits together give the sum of the limits, equal or not") {
  for (const auto& limits :
       {std::vector<std::uint64_t>{200'000'000, 200'000'000}, std::vector<std::uint64_t>{100'000'000, 300'000'000}}) {
    PeerWorld world(12, 2, false, 0, {.tcp_links = 2, .max_bandwidth = limits});
    settle_links(world, 2);
    stream(world, 20);  // gets to know its links
    constexpr int k_times = 200;
    const Duration took = stream(world, k_times);
    const double rate = static_cast<double>(k_times) * k_whole / std::chrono::duration<double>(took).count();
    CAPTURE(rate);
    CHECK(rate >= 0.95 * 400e6);
    CHECK(rate <= 1.02 * 400e6);
  }
}

TEST_CASE("P38 S20 a link that falls silent is given up when another one lives; nothing is lost, and it comes back") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, false, 0, {.tcp_links = 2, .max_bandwidth = {200'000'000, 200'000'000}});
    settle_links(world, 2);
    fill(world[0].memory, seed);
    std::vector<Job*> jobs;
    for (int i = 0; i < 40; ++i) jobs.push_back(&world[0].put(world[1], 0, k_whole));
    world.world.run_for(milliseconds(20));
    world.world.clog(world[0].port, world[1].port, seconds(4), runtime::VirtualWorld::Which::one);
    REQUIRE(
        world.run([&] { return std::all_of(jobs.begin(), jobs.end(), [](const Job* job) { return job->ended(); }); },
                  seconds(3)));
    for (const Job* job : jobs) CHECK(job->code == ErrorCode::ok);
    CHECK(world[1].memory == world[0].memory);
    const auto failures = [&] { return row(world[0], 1, 0).failures + row(world[0], 1, 1).failures; };
    CHECK(failures() >= 1);
    // Both ends know.
    CHECK(row(world[1], 0, 0).failures + row(world[1], 0, 1).failures >= 1);
    REQUIRE(world.run([&] { return world[0].links_up(1) == 2 && world[1].links_up(0) == 2; }));
    REQUIRE(
        world.run([&] { return row(world[0], 1, 0).share == 100 && row(world[0], 1, 1).share == 100; }, seconds(10)));
  }
}

TEST_CASE("the gap that a silent link leaves is the stall threshold and little more") {
  for (const Duration stall : {Duration(milliseconds(200)), Duration(milliseconds(25))}) {
    for (std::uint64_t seed = 20; seed < 30; ++seed) {
      INFO("seed ", seed);
      PeerWorld world(seed, 2, false, 0, {.tcp_links = 2, .max_bandwidth = {50'000'000, 50'000'000}, .stall = stall});
      settle_links(world, 2);
      // One at a time, so that a chunk on the silent link holds everything up.
      Duration longest{};
      Instant last = world.world.now();
      for (int i = 0; i < 40; ++i) {
        if (i == 10) world.world.clog(world[0].port, world[1].port, seconds(4), runtime::VirtualWorld::Which::one);
        Job& put = world[0].put(world[1], 0, 256U << 10U);
        REQUIRE(world.run([&] { return put.ended(); }));
        REQUIRE(put.code == ErrorCode::ok);
        longest = std::max(longest, world.world.now() - last);
        last = world.world.now();
      }
      CAPTURE(longest.count());
      CHECK(longest <= stall + milliseconds(20));
      CHECK(longest >= stall);
    }
  }
}

TEST_CASE("a peer that stands still loses no link: all of them are silent") {
  PeerWorld world(13, 2, false, 0, {.tcp_links = 2});
  settle_links(world, 2);
  std::vector<Job*> jobs;
  for (int i = 0; i < 40; ++i) jobs.push_back(&world[0].put(world[1], 0, k_whole));
  world.world.run_for(milliseconds(1));
  world.world.pause(world[1].port, milliseconds(1500));
  world.world.run_for(milliseconds(1000));
  CHECK(row(world[0], 1, 0).state == "SUSPECT");
  CHECK(row(world[0], 1, 1).state == "SUSPECT");
  REQUIRE(
      world.run([&] { return std::all_of(jobs.begin(), jobs.end(), [](const Job* job) { return job->ended(); }); }));
  for (const Job* job : jobs) CHECK(job->code == ErrorCode::ok);
  for (std::uint32_t i = 0; i < 2; ++i) {
    CHECK(row(world[0], 1, i).failures == 0);
    CHECK(row(world[0], 1, i).stalls == 1);
    CHECK(row(world[0], 1, i).state == "UP");
  }
}

TEST_CASE("a link that came back is on probation, then gets its share by and by") {
  PeerWorld world(14, 2, false, 0, {.tcp_links = 2});
  settle_links(world, 2);
  while (row(world[0], 1, 0).failures + row(world[0], 1, 1).failures == 0) {
    world.world.reset(world[0].port, world[1].port, runtime::VirtualWorld::Which::one);
    world.world.run_for(milliseconds(10));
  }
  const auto broken = [&]() -> std::uint32_t { return row(world[0], 1, 0).failures > 0 ? 0 : 1; };
  bool probation = false;
  REQUIRE(world.run([&] {
    const LinkInfo link = row(world[0], 1, broken());
    probation = probation || link.state == "PROBATION";
    return link.up && link.share == 10;
  }));
  CHECK(probation);
  const Instant proved = world.world.now();
  REQUIRE(world.run([&] { return row(world[0], 1, broken()).share == 100; }));
  CHECK(world.world.now() - proved <= milliseconds(3100));
  CHECK(world.world.now() - proved >= milliseconds(2900));
}

TEST_CASE("bulk keeps to a link's share, however small its chunks are; the sibling takes the rest") {
  PeerWorld world(18, 2, false, 0, {.tcp_links = 2});
  settle_links(world, 2);
  while (row(world[0], 1, 0).failures + row(world[0], 1, 1).failures == 0) {
    world.world.reset(world[0].port, world[1].port, runtime::VirtualWorld::Which::one);
    world.world.run_for(milliseconds(10));
  }
  const std::uint32_t back = row(world[0], 1, 0).failures > 0 ? 0 : 1;
  REQUIRE(world.run([&] { return row(world[0], 1, back).up && row(world[0], 1, back).share == 10; }));
  std::vector<Job*> jobs;
  for (int i = 0; i < 20; ++i) jobs.push_back(&world[0].put(world[1], 0, k_whole));
  std::uint64_t most_back = 0, most_other = 0;
  REQUIRE(world.run([&] {
    most_back = std::max(most_back, row(world[0], 1, back).bytes_in_flight);
    most_other = std::max(most_other, row(world[0], 1, 1 - back).bytes_in_flight);
    return std::all_of(jobs.begin(), jobs.end(), [](const Job* job) { return job->ended(); });
  }));
  REQUIRE(row(world[0], 1, back).share == 10);
  // A tenth of what a link may have at all, and the chunk (64 KiB here) that goes over that.
  CHECK(most_back <= k_inflight_bytes_max / 10 + (64U << 10U));
  CHECK(most_back > 0);
  CHECK(most_other > 2 * most_back);
}

TEST_CASE("small operations go before large ones that are under way") {
  PeerWorld world(15, 2, false, 0, {.tcp_links = 1, .max_bandwidth = {100'000'000}});
  settle_links(world, 1);
  std::vector<Job*> bulk;
  for (int i = 0; i < 30; ++i) bulk.push_back(&world[0].put(world[1], 64U << 10U, k_whole - (64U << 10U)));
  world.world.run_for(milliseconds(20));
  for (int i = 0; i < 20; ++i) {
    const Instant begin = world.world.now();
    Job& small = world[0].put(world[1], 0, 4096);
    REQUIRE(world.run([&] { return small.ended(); }));
    CHECK(small.code == ErrorCode::ok);
    // A chunk and the bucket's debt; the bulk before it would take 300 ms.
    CHECK(world.world.now() - begin <= milliseconds(15));
  }
  CHECK_FALSE(bulk.back()->ended());
  REQUIRE(world.run([&] { return bulk.back()->ended(); }));
}

TEST_CASE("F190 connections made ahead: all links, before anything is posted; errors at the deadline") {
  PeerWorld world(16, 2, false, 1, {.tcp_links = 4});
  struct Told {
    int times = 0;
    Result<void> result{};
  } told;
  const auto note = [](void* context, const Result<void>& result) {
    auto& here = *static_cast<Told*>(context);
    here.times += 1;
    here.result = result;
  };
  world[0].to(1).prewarm({.deadline = world.world.now() + seconds(5), .done = note, .context = &told});
  CHECK(told.times == 0);  // never inline
  world[0].wake();
  REQUIRE(world.run([&] { return told.times > 0; }, seconds(5)));
  CHECK(told.result.has_value());
  CHECK(world[0].links_up(1) == 4);
  // Nobody lives at rank 2.
  Told nobody;
  world[0].to(2).prewarm({.deadline = world.world.now() + seconds(1), .done = note, .context = &nobody});
  world[0].wake();
  REQUIRE(world.run([&] { return nobody.times > 0; }, seconds(2)));
  REQUIRE_FALSE(nobody.result.has_value());
  CHECK(nobody.result.error().detail.stage == Stage::rendezvous);
  world.world.run_for(seconds(2));
  CHECK(told.times == 1);
  CHECK(nobody.times == 1);
}

TEST_CASE("one link's path swallows every dial: the others stand and carry") {
  PeerWorld world(17, 2, false, 0, {.tcp_links = 2});
  settle_links(world, 2);
  runtime::FaultPlan plan;
  plan.connect_lost_per_mille = 1000;
  world.world.set_plan(plan);
  while (row(world[0], 1, 0).failures + row(world[0], 1, 1).failures == 0) {
    world.world.reset(world[0].port, world[1].port, runtime::VirtualWorld::Which::one);
    world.world.run_for(milliseconds(10));
  }
  world.world.run_for(milliseconds(300));
  CHECK(world[0].links_up(1) == 1);
  stream(world, 4);
  world.world.set_plan({});
  REQUIRE(world.run([&] { return world[0].links_up(1) == 2; }, seconds(20)));
}
