// SPDX-License-Identifier: Apache-2.0
//
// A rank's side of the rendezvous when the store is absent, wrong, or comes and goes; and everything over bad networks.
#include "store_world.hpp"

#include <algorithm>
#include <cerrno>

namespace hixl::group::test {
namespace {

using namespace std::chrono_literals;
using runtime::VirtualWorld;

TEST_CASE("RENDEZVOUS_UNREACHABLE at the deadline when there is no store, with the errno") {
  VirtualWorld world(1);
  MemberProcess member(world, 0, 8, 3s);
  member.join();
  CHECK_FALSE(member.joined.has_value());
  world.run_for(4s);
  CHECK(member.code() == ErrorCode::rendezvous_unreachable);
  CHECK(member.joined->error().detail.os_error == ECONNREFUSED);
  CHECK(member.joined->error().detail.stage == Stage::rendezvous);
  CHECK(member.joined_at >= member.deadline);
  CHECK(member.joined_at <= member.deadline + 5ms);
}

TEST_CASE("a store that starts later is found") {
  VirtualWorld world(2);
  MemberProcess member(world, 0, 8, 30s);
  member.join();
  world.run_for(10s);
  CHECK_FALSE(member.joined.has_value());
  StoreProcess store(world);
  world.run_for(3s);
  CHECK(member.is_joined());
}

TEST_CASE("a stranger that accepts and never answers is not taken for a store") {
  VirtualWorld world(3);
  FalseStore stranger(world);
  MemberProcess member(world, 0, 8, 5s);
  member.join();
  world.run_for(6s);
  CHECK(member.code() == ErrorCode::rendezvous_unreachable);
  CHECK(member.joined->error().detail.os_error == ETIMEDOUT);
  CHECK(member.joined_at <= member.deadline + 5ms);
}

TEST_CASE("a stranger that answers something else, or another version, ends the attempt at once") {
  std::vector<std::byte> other_version = frame_of(wire::FrameType::store_claimed, wire::StoreClaimed{});
  other_version[4] = std::byte{wire::k_version + 1};
  const std::vector<std::byte> greeting(100, std::byte{'H'});
  for (const auto& [bytes, code] :
       {std::pair(other_version, ErrorCode::version_mismatch), std::pair(greeting, ErrorCode::malformed_frame)}) {
    VirtualWorld world(4);
    FalseStore stranger(world, bytes);
    MemberProcess member(world, 0, 8, 5s);
    member.join();
    world.run_for(200ms);
    CHECK(member.code() == code);
    const std::size_t dials = stranger.dials;
    world.run_for(10s);
    CHECK(stranger.dials == dials);
  }
}

TEST_CASE("S67: the store dies and comes back; everybody announces itself again and nobody is told anything twice") {
  VirtualWorld world(5);
  auto store = std::make_unique<StoreProcess>(world);
  std::vector<std::unique_ptr<MemberProcess>> members;
  for (Rank rank = 0; rank < 4; ++rank) {
    members.push_back(std::make_unique<MemberProcess>(world, rank));
    for (Rank other = 0; other < 5; ++other) {
      if (other != rank) members.back()->watch(other);
    }
    members.back()->join();
  }
  world.run_for(200ms);
  for (const auto& member : members) CHECK(member->notices.size() == 3);
  store->kill();
  world.run_for(20s);
  for (const auto& member : members) CHECK(member->notices.size() == 3);  // peers do not notice
  StoreProcess again(world);
  world.run_for(3s);
  CHECK(again.counters().members == 4);
  for (const auto& member : members) CHECK(member->notices.size() == 3);
  MemberProcess late(world, 4);
  late.watch(0);
  late.join();
  world.run_for(100ms);
  CHECK(late.knows(*members[0]));
  for (const auto& member : members) CHECK(member->knows(late));
}

TEST_CASE("a store whose host vanished without a word is noticed") {
  VirtualWorld world(6);
  auto store = std::make_unique<StoreProcess>(world);
  MemberProcess member(world, 0);
  member.watch(1);
  member.join();
  world.run_for(100ms);
  REQUIRE(member.is_joined());
  world.clog(member.port, store->port, 60s);
  world.clog(store->port, member.port, 60s);
  store->kill();
  StoreProcess again(world);
  world.run_for(30s);
  CHECK(again.counters().members == 1);
}

TEST_CASE("dials are spread: at most one a pause, and the pause grows") {
  VirtualWorld world(7);
  FalseStore refuser(world);
  refuser.hangs_up = true;
  MemberProcess member(world, 0, 8, 100s);
  member.join();
  world.run_for(100s);
  // 50 ms doubling to 2 s, drawn evenly below that: about a hundred in 100 s.
  CHECK(refuser.dials > 50);
  CHECK(refuser.dials < 200);
}

TEST_CASE("leave closes the connection, and nothing follows") {
  VirtualWorld world(8);
  StoreProcess store(world);
  MemberProcess member(world, 0);
  member.join();
  world.run_for(100ms);
  member.membership->leave();
  world.run_for(100ms);
  CHECK(store.counters().members == 0);
  world.run_for(30s);
  CHECK(store.counters().members == 0);
  MemberProcess never(world, 1);
  never.membership->leave();
  never.membership.reset();
  world.run_for(1s);
}

TEST_CASE("over bad networks: every rank joins and finds every other, through deaths of store and ranks") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed ", seed);
    Choices random(seed);
    VirtualWorld world(seed, runtime::FaultPlan::draw(random));
    std::vector<std::unique_ptr<StoreProcess>> stores;
    stores.push_back(std::make_unique<StoreProcess>(world));
    const std::uint32_t ranks = static_cast<std::uint32_t>(random.between(2, 8));
    std::vector<std::unique_ptr<MemberProcess>> lives;  // all; the dead ones too
    std::vector<MemberProcess*> members(ranks);
    const auto start = [&](Rank rank) {
      lives.push_back(std::make_unique<MemberProcess>(world, rank, ranks, 600s));
      members[rank] = lives.back().get();
      for (Rank other = 0; other < ranks; ++other) {
        if (other != rank) members[rank]->watch(other);
      }
      members[rank]->join();
    };
    for (Rank rank = 0; rank < ranks; ++rank) start(rank);
    for (int round = 0; round < 20; ++round) {
      world.run_for(Duration(static_cast<std::int64_t>(random.between(1'000'000, 1'000'000'000))));
      if (random.chance(200)) {
        const Rank victim = static_cast<Rank>(random.below(ranks));
        members[victim]->kill();
        start(victim);
      }
      if (random.chance(100)) {
        stores.back()->kill();
        stores.push_back(std::make_unique<StoreProcess>(world));
      }
    }
    world.set_plan({});
    const auto settled = [&] {
      for (const MemberProcess* member : members) {
        for (const MemberProcess* other : members) {
          if (other != member && !member->knows(*other)) return false;
        }
        if (!member->is_joined()) return false;
      }
      return stores.back()->counters().members == ranks;
    };
    const Instant healed = world.now();
    world.run_for(1ms);
    while (!settled() && world.now() < healed + 30s) world.run_for(100ms);
    REQUIRE(settled());
  }
}

}  // namespace
}  // namespace hixl::group::test
