// SPDX-License-Identifier: Apache-2.0
//
// The store against well-meaning and other clients: who is told what, and what strangers can do.
#include "store_world.hpp"

namespace hixl::group::test {
namespace {

using namespace std::chrono_literals;
using runtime::VirtualWorld;

TEST_CASE("ranks find each other, whoever comes first") {
  VirtualWorld world(1);
  StoreProcess store(world);
  MemberProcess early(world, 0);
  early.watch(1);  // before joining, and before rank 1 is there
  early.join();
  world.run_for(100ms);
  REQUIRE(early.is_joined());
  CHECK(early.notices.empty());
  MemberProcess late(world, 1);
  late.join();
  world.run_for(100ms);
  REQUIRE(late.is_joined());
  late.watch(0);                // when rank 0 is there
  CHECK(late.notices.empty());  // never inline
  world.run_for(100ms);
  CHECK(early.notices == std::vector<Notice>{{1, late.mine.incarnation, true}});
  CHECK(late.notices == std::vector<Notice>{{0, early.mine.incarnation, true}});
  CHECK(late.last.addresses == early.mine.addresses);
  CHECK(late.last.unix_name == early.mine.unix_name);
  CHECK(late.last.peer_id == early.mine.peer_id);
  CHECK(store.counters().members == 2);
}

TEST_CASE("a rank that leaves, dies or restarts is reported as what it is") {
  VirtualWorld world(2);
  StoreProcess store(world);
  MemberProcess witness(world, 0);
  witness.watch(1);
  witness.join();
  auto first = std::make_unique<MemberProcess>(world, 1);
  first->join();
  world.run_for(100ms);
  const Incarnation first_life = first->mine.incarnation;
  first->membership->leave();
  world.run_for(100ms);
  REQUIRE(witness.notices == std::vector<Notice>{{1, first_life, true}, {1, first_life, false}});
  MemberProcess second(world, 1);
  second.join();
  world.run_for(100ms);
  REQUIRE(second.is_joined());
  second.kill();
  world.run_for(100ms);
  CHECK(witness.notices.back() == Notice{1, second.mine.incarnation, false});
  MemberProcess third(world, 1);
  third.start.born = 50;
  third.join();
  world.run_for(100ms);
  CHECK(third.is_joined());
  CHECK(witness.notices.back() == Notice{1, third.mine.incarnation, true});
  CHECK(witness.notices.size() == 5);
}

TEST_CASE("every life of a rank gets a birth above all earlier ones, and keeps it") {
  VirtualWorld world(12);
  StoreProcess store(world);
  MemberProcess witness(world, 0);
  witness.watch(1);
  witness.join();
  CHECK(witness.membership->birth() == 0);
  Birth last = 0;
  for (int i = 0; i < 5; ++i) {
    MemberProcess member(world, 1);
    if (i == 3) member.start.born = 1000;
    member.join();
    world.run_for(100ms);
    REQUIRE(member.is_joined());
    CHECK(member.membership->birth() > last);
    CHECK(member.membership->birth() == (i < 3 ? last + 1 : 997 + static_cast<Birth>(i)));
    last = member.membership->birth();
    CHECK(witness.last.birth == last);
    world.reset(member.port, store.port);  // it comes again, as the same life
    world.run_for(3s);
    CHECK(witness.knows(member));
    CHECK(member.membership->birth() == last);
    CHECK(witness.last.birth == last);
    i % 2 == 0 ? member.membership->leave() : member.kill();
    world.run_for(600ms);
  }
}

TEST_CASE("a store that comes back empty learns the births from those who live, and gives higher ones") {
  VirtualWorld world(13);
  auto store = std::make_unique<StoreProcess>(world);
  MemberProcess first(world, 1);
  first.start.born = 50;
  first.join();
  world.run_for(100ms);
  REQUIRE(first.membership->birth() == 50);
  // Its heir has the rank by the time the store dies; the first life is a zombie, and claims first.
  world.pause(first.port, 1s);
  MemberProcess heir(world, 1);
  heir.start.born = 60;
  heir.join();
  world.run_for(700ms);
  REQUIRE(heir.membership->birth() == 60);
  store->kill();
  world.pause(heir.port, 20s);
  world.run_for(10s);
  StoreProcess again(world);
  world.run_for(5s);
  MemberProcess witness(world, 0);
  witness.watch(1);
  witness.join();
  world.run_for(100ms);
  CHECK(witness.last.birth == 50);
  world.run_for(10s);
  CHECK(witness.last.birth == 60);
  CHECK(witness.knows(heir));
  CHECK(again.counters().conflicts > 0);  // the zombie's
  heir.kill();
  MemberProcess third(world, 1);
  third.start.born = 55;  // the clock of its host is behind
  third.join();
  world.run_for(1s);
  CHECK(third.membership->birth() == 61);
}

TEST_CASE("a birth beyond all is refused, and the next one after the last too") {
  VirtualWorld world(14);
  StoreProcess store(world);
  MemberProcess last(world, 1);
  last.start.born = wire::k_birth_max;
  last.join();
  world.run_for(100ms);
  REQUIRE(last.is_joined());
  last.kill();
  world.run_for(600ms);
  MemberProcess beyond(world, 1);
  beyond.join();
  world.run_for(100ms);
  CHECK(beyond.code() == ErrorCode::limit_reached);
  MemberProcess other(world, 2);
  other.join();
  world.run_for(100ms);
  CHECK(other.is_joined());
}

TEST_CASE("RANK_OUT_OF_RANGE and a wrong world size name the limit") {
  VirtualWorld world(6);
  StoreProcess store(world);
  MemberProcess outside(world, 8, 8);
  outside.join();
  world.run_for(100ms);
  CHECK(outside.code() == ErrorCode::rank_out_of_range);
  CHECK(outside.joined->error().detail.limit == 8);
  MemberProcess first(world, 0, 4);
  first.join();
  world.run_for(100ms);
  REQUIRE(first.is_joined());
  MemberProcess other_world(world, 1, 8);
  other_world.join();
  world.run_for(100ms);
  CHECK(other_world.code() == ErrorCode::invalid_argument);
  CHECK(other_world.joined->error().detail.limit == 4);
  // When the last has left, the store is free for another job.
  first.membership->leave();
  world.run_for(100ms);
  MemberProcess next_job(world, 7, 8);
  next_job.join();
  world.run_for(100ms);
  CHECK(next_job.is_joined());
}

TEST_CASE("bytes that are no frame end their own connection and no other") {
  const std::vector<std::byte> garbage(200, std::byte{0x5a});
  std::vector<std::byte> bad_checksum = frame_of(wire::FrameType::store_lookup, wire::StoreLookup{1});
  bad_checksum.back() ^= std::byte{1};
  std::vector<std::byte> bad_body = frame_of(wire::FrameType::store_claim, wire::StoreLookup{1});
  const std::vector<std::byte> unclaimed = frame_of(wire::FrameType::store_lookup, wire::StoreLookup{1});
  const std::vector<std::byte> foreign = frame_of(wire::FrameType::barrier, wire::Barrier{});
  VirtualWorld world(7);
  StoreProcess store(world);
  MemberProcess member(world, 0);
  member.watch(1);
  member.join();
  world.run_for(100ms);
  std::uint64_t dropped = 0;
  for (const auto& bytes : {garbage, bad_checksum, bad_body, unclaimed, foreign}) {
    Stranger stranger(world);
    stranger.listen();
    world.run_for(10ms);
    stranger.say(bytes);
    world.run_for(100ms);
    CHECK(stranger.closed);
    CHECK(store.counters().malformed == ++dropped);
  }
  CHECK(store.counters().half_open == 0);
  MemberProcess other(world, 1);
  other.join();
  world.run_for(100ms);
  CHECK(member.knows(other));
}

TEST_CASE("a member that breaks the rules loses its rank and nothing else happens") {
  VirtualWorld world(8);
  StoreProcess store(world);
  MemberProcess witness(world, 0);
  witness.watch(1);
  witness.join();
  Stranger stranger(world);
  stranger.listen();
  world.run_for(100ms);
  wire::StoreClaim claim;
  claim.world_size = 8;
  claim.endpoints.rank = 1;
  claim.endpoints.incarnation = 99;
  stranger.say(frame_of(wire::FrameType::store_claim, claim));
  world.run_for(100ms);
  REQUIRE(witness.notices == std::vector<Notice>{{1, 99, true}});
  SUBCASE("claims twice") { stranger.say(frame_of(wire::FrameType::store_claim, claim)); }
  SUBCASE("looks up a rank outside the world") {
    stranger.say(frame_of(wire::FrameType::store_lookup, wire::StoreLookup{8}));
  }
  world.run_for(100ms);
  CHECK(stranger.closed);
  CHECK(store.counters().malformed == 1);
  CHECK(witness.notices.back() == Notice{1, 99, false});
}

TEST_CASE("a client of another version is told so") {
  VirtualWorld world(9);
  StoreProcess store(world);
  Stranger stranger(world);
  stranger.listen();
  world.run_for(10ms);
  std::vector<std::byte> bytes = frame_of(wire::FrameType::store_lookup, wire::StoreLookup{1});
  bytes[4] = std::byte{wire::k_version + 1};
  stranger.say(bytes);
  world.run_for(100ms);
  CHECK(stranger.closed);
  REQUIRE(stranger.heard.size() >= wire::k_header_bytes);
  const auto header = wire::decode_header(std::span(stranger.heard).first<wire::k_header_bytes>());
  REQUIRE(header.has_value());
  CHECK(header->version == wire::k_version);
}

TEST_CASE("idle strangers are dropped after two seconds and cannot keep a member out") {
  VirtualWorld world(10);
  StoreProcess store(world);
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(std::make_unique<Stranger>(world));
  for (auto& one : crowd) one->listen();
  world.run_for(500ms);
  CHECK(store.counters().half_open == 64);
  CHECK(store.counters().idle == 36);
  MemberProcess member(world, 0);
  member.join();
  world.run_for(100ms);
  CHECK(member.is_joined());
  world.run_for(2s);
  CHECK(store.counters().half_open == 0);
  for (const auto& one : crowd) CHECK(one->closed);
}

TEST_CASE("a reader that never reads is dropped; the others are served") {
  runtime::FaultPlan narrow;
  narrow.pipe_bytes = 8192;
  VirtualWorld world(11, narrow);
  StoreProcess store(world);
  Stranger sleeper(world);
  MemberProcess witness(world, 0);
  witness.watch(1);
  witness.join();
  world.run_for(100ms);
  wire::StoreClaim claim;
  claim.world_size = 8;
  claim.endpoints.rank = 2;
  claim.endpoints.incarnation = 99;
  sleeper.say(frame_of(wire::FrameType::store_claim, claim));
  sleeper.say(frame_of(wire::FrameType::store_lookup, wire::StoreLookup{1}));
  world.run_for(100ms);
  CHECK(store.counters().members == 2);
  // Each life of rank 1 has the longest endpoints there are: 4 KiB a notice.
  constexpr int k_lives = 40;
  for (int i = 1; i <= k_lives; ++i) {
    MemberProcess member(world, 1);
    member.mine.addresses.assign(wire::k_addresses_max, std::string(wire::k_address_bytes_max, 'h'));
    member.join();
    world.run_for(50ms);
    REQUIRE(member.is_joined());
    CHECK(witness.knows(member));
    if (i == k_lives) {
      world.run_for(3s);
      CHECK(store.counters().slow == 1);
      CHECK(store.counters().members == 2);
    }
    member.membership->leave();
    world.run_for(50ms);
  }
  CHECK(witness.notices.size() == 2 * k_lives);
}

}  // namespace
}  // namespace hixl::group::test
