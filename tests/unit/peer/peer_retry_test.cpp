// SPDX-License-Identifier: Apache-2.0
//
// F80 F81: how often a piece is tried again, who is asked then, and what a failed end tells.
#include <doctest/doctest.h>

#include <algorithm>

#include "peer_world.hpp"

using namespace hixl;
using namespace hixl::peer;
using namespace hixl::peer::test;

namespace {

/// Breaks all connections whenever something of the operation is on its way, until it has ended.
void break_under(PeerWorld& world, const Job& job) {
  runtime::FaultPlan plan;
  plan.pipe_bytes = 4U << 10U;  // so that it takes many turns
  world.world.set_plan(plan);
  const auto moving = [&] {
    const auto links = world[0].links(1);
    return std::any_of(links.begin(), links.end(), [](const LinkInfo& link) { return link.in_flight > 0 && link.up; });
  };
  REQUIRE(world.run(
      [&] {
        if (moving()) world.world.reset(world[0].port, world[1].port);
        return job.ended();
      },
      seconds(29)));
  world.world.set_plan({});
}

}  // namespace

TEST_CASE("the retries of a piece are counted, and its operation ends when they are used up") {
  for (const std::uint32_t count : {0U, 1U, 3U}) {
    CAPTURE(count);
    PeerWorld world(31, 2, false, 0, {.tcp_links = 1, .retry = {.count = count}});
    world.meet(0, 1);
    Job& put = world[0].put(world[1], 0, 60'000);
    break_under(world, put);
    CHECK(put.code == ErrorCode::retries_exhausted);
    CHECK(put.error.detail.rank == 1);
    CHECK(world[0].counters.retries == count + 1);
    // It is over: nothing of it comes any more (S4).
    const std::vector<std::byte> before = world[1].memory;
    world.world.run_for(seconds(5));
    CHECK(world[1].memory == before);
    Job& next = world[0].put(world[1], 0, 60'000);
    REQUIRE(world.run([&] { return next.ended(); }));
    CHECK(next.code == ErrorCode::ok);
  }
}

TEST_CASE("the hook is asked with the facts, and what it says is done") {
  std::vector<FailedPiece> asked;
  PeerWorld world(32, 2, false, 0, {.tcp_links = 1, .retry = {.count = 1}, .ask = true});
  world.meet(0, 1);
  world[0].degrade = [&](const FailedPiece& piece) {
    asked.push_back(piece);
    return asked.size() < 3 ? Degrade::next_link : Degrade::fail;
  };
  Job& put = world[0].put(world[1], 0, 60'000);
  break_under(world, put);
  CHECK(put.code == ErrorCode::retries_exhausted);
  REQUIRE(asked.size() == 3);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    CHECK(asked[i].rank == 1);
    CHECK(asked[i].kind == LinkKind::tcp);
    CHECK(asked[i].attempts == 2 * (i + 1));
    CHECK(asked[i].bytes == 60'000);
    CHECK(asked[i].error.code != ErrorCode::ok);
  }
}

TEST_CASE("without a hook tcp is tried when another kind has used up its retries") {
  PeerWorld world(33, 2, true, 0, {.tcp_links = 1, .retry = {.count = 2}});
  world.meet(0, 1);
  REQUIRE(world.run([&] { return world[0].links_up(1) == 2; }));
  links::SimPlan plan;
  plan.break_per_mille = 1000;
  plan.delay_min = milliseconds(50);
  plan.delay_max = milliseconds(51);
  world.fabric.set_plan(plan);
  // By the fabric alone at first, each time that it comes back.
  Job& put = world[0].put(world[1], 0, 60'000);
  REQUIRE(world.run([&] { return put.ended(); }));
  CHECK(put.code == ErrorCode::ok);
  CHECK(world[0].counters.retries >= 1);
}

TEST_CASE("a failed end tells which bytes are known to be there, and they are") {
  PeerWorld world(34, 2, false, 0, {.tcp_links = 2, .max_bandwidth = {10'000'000, 10'000'000}});
  world.meet(0, 1);
  REQUIRE(world.run([&] { return world[0].links_up(1) == 2; }));
  for (std::size_t i = 0; i < world[0].memory.size(); ++i) world[0].memory[i] = static_cast<std::byte>(i * 7 + 1);
  Job& put = world[0].put(world[1], 0, k_memory_bytes, milliseconds(30));
  REQUIRE(world.run([&] { return put.ended(); }));
  REQUIRE(put.code == ErrorCode::deadline_exceeded);
  std::uint64_t told = 0;
  for (const ByteRange& range : put.written) {
    told += range.end - range.begin;
    CHECK(std::equal(world[0].memory.begin() + static_cast<std::ptrdiff_t>(range.begin),
                     world[0].memory.begin() + static_cast<std::ptrdiff_t>(range.end),
                     world[1].memory.begin() + static_cast<std::ptrdiff_t>(range.begin)));
  }
  CHECK(told > 0);
  CHECK(told < k_memory_bytes);
  CHECK(told == put.error.detail.limit);
}
