// SPDX-License-Identifier: Apache-2.0
//
// Who holds a rank at the store when several want it.
#include "store_world.hpp"

namespace hixl::group::test {
namespace {

using namespace std::chrono_literals;
using runtime::VirtualWorld;

TEST_CASE("RANK_CONFLICT: a rank whose holder lives is not given away") {
  VirtualWorld world(3);
  StoreProcess store(world);
  MemberProcess holder(world, 1);
  holder.join();
  world.run_for(100ms);
  MemberProcess rival(world, 1);
  rival.join();
  world.run_for(400ms);
  CHECK(rival.code() == ErrorCode::rank_conflict);
  CHECK(rival.joined->error().detail.rank == 1);
  CHECK(rival.joined->error().detail.stage == Stage::rendezvous);
  CHECK(store.counters().conflicts == 1);
  MemberProcess witness(world, 0);
  witness.watch(1);
  witness.join();
  world.run_for(100ms);
  CHECK(witness.knows(holder));
}

TEST_CASE("a holder that does not answer for half a second is replaced") {
  VirtualWorld world(4);
  StoreProcess store(world);
  MemberProcess holder(world, 1);
  holder.join();
  MemberProcess witness(world, 0);
  witness.watch(1);
  witness.join();
  world.run_for(100ms);
  world.pause(holder.port, 3s);
  MemberProcess heir(world, 1);
  heir.join();
  world.run_for(400ms);
  CHECK_FALSE(heir.joined.has_value());
  world.run_for(200ms);
  CHECK(heir.is_joined());
  CHECK(witness.knows(heir));
  CHECK(store.counters().replaced == 1);
  // The one that was stopped finds its rank taken, and does not get it back.
  world.run_for(10s);
  CHECK(witness.knows(heir));
  CHECK(store.counters().conflicts > 0);
  // Not even when its heir is gone: others have seen that one, and hold it for over.
  heir.kill();
  world.run_for(10s);
  CHECK_FALSE(witness.knows(holder));
  CHECK(store.counters().members == 1);
}

TEST_CASE("a rank at once after its holder's death, to one that was born later") {
  VirtualWorld world(5);
  StoreProcess store(world);
  MemberProcess holder(world, 1);
  holder.join();
  world.run_for(100ms);
  MemberProcess heir(world, 1);
  SUBCASE("known to be later") { heir.start.born = 50; }
  SUBCASE("not known: when a living holder would have claimed again") {}
  heir.join();
  // The death reaches the store while it waits for the holder's answer.
  world.pause(holder.port, 1s);
  world.run_for(100ms);
  holder.kill();
  world.run_for(100ms);
  CHECK(heir.is_joined() == (heir.start.born != 0));
  world.run_for(500ms);
  CHECK(heir.is_joined());
}

TEST_CASE("an earlier life of the holder's host never has the rank of one that has not left") {
  VirtualWorld world(6);
  StoreProcess store(world);
  MemberProcess holder(world, 1);
  holder.start = {.born = 900, .host = 7, .since_boot = 60};
  holder.join();
  MemberProcess witness(world, 0);
  witness.watch(1);
  witness.join();
  world.run_for(100ms);
  // Its claim came late, and the holder stands still longer than the store waits for an answer.
  MemberProcess late(world, 1, 8, 1s);
  late.start = {.born = 1000, .host = 7, .since_boot = 59};  // the wall clock was set back in between
  world.pause(holder.port, 3s);
  SUBCASE("it stands still") {}
  SUBCASE("its connection breaks too") { world.reset(holder.port, store.port); }
  late.join();
  world.run_for(2s);
  CHECK(late.code() == ErrorCode::rank_conflict);
  world.run_for(5s);
  CHECK(witness.knows(holder));
  // What another host says of its own clock orders nothing.
  world.pause(holder.port, 3s);
  MemberProcess stranger(world, 1);
  stranger.start = {.born = 0, .host = 8, .since_boot = 1};
  stranger.join();
  world.run_for(1s);
  CHECK(witness.knows(stranger));
}

TEST_CASE(
    "when the later life has left, the earlier one may have the rank; a later one has that of a lost one at once") {
  VirtualWorld world(7);
  StoreProcess store(world);
  MemberProcess holder(world, 1);
  holder.start = {.born = 900, .host = 7, .since_boot = 60};
  holder.join();
  world.run_for(100ms);
  MemberProcess other(world, 1);
  SUBCASE("left") {
    holder.membership->leave();
    other.start = {.born = 800, .host = 7, .since_boot = 50};
  }
  SUBCASE("lost") {
    holder.kill();
    other.start = {.born = 800, .host = 7, .since_boot = 61};
  }
  world.run_for(100ms);
  other.join();
  world.run_for(100ms);
  CHECK(other.is_joined());
}

TEST_CASE("a guest begins no world: whoever comes next may have one of another size") {
  VirtualWorld world(8);
  StoreProcess store(world);
  MemberProcess guest(world, 3, 65);
  guest.guest = 1;
  guest.join();
  world.run_for(100ms);
  CHECK(guest.code() == ErrorCode::rendezvous_unreachable);
  CHECK(store.counters().members == 0);
  MemberProcess host(world, 0, 2);
  host.join();
  world.run_for(100ms);
  REQUIRE(host.is_joined());
  MemberProcess late(world, 1, 2);
  late.guest = 1;
  late.join();
  world.run_for(100ms);
  CHECK(late.is_joined());
}

TEST_CASE("who asks while the holder leaves has the rank at once") {
  VirtualWorld world(5);
  StoreProcess store(world);
  Stranger holder(world);
  holder.listen();
  world.run_for(10ms);
  wire::StoreClaim claim;
  claim.world_size = 5;
  claim.endpoints.rank = 1;
  claim.endpoints.incarnation = 99;
  holder.say(frame_of(wire::FrameType::store_claim, claim));
  world.run_for(100ms);
  MemberProcess heir(world, 1, 5);
  heir.join();
  world.run_for(100ms);
  CHECK_FALSE(heir.joined.has_value());  // the holder says nothing
  holder.say(frame_of(wire::FrameType::store_leave, wire::StoreLeave{}));
  world.run_for(100ms);
  CHECK(heir.is_joined());
}

TEST_CASE("a holder that came again and left is no holder that was lost") {
  VirtualWorld world(5);
  StoreProcess store(world);
  MemberProcess holder(world, 1);
  holder.join();
  world.run_for(100ms);
  world.reset(holder.port, store.port);
  world.run_for(100ms);
  MemberProcess witness(world, 0);
  witness.watch(1);
  witness.join();
  world.run_for(100ms);
  REQUIRE(witness.knows(holder));
  holder.membership->leave();
  MemberProcess heir(world, 1);
  heir.join();
  world.run_for(100ms);
  CHECK(heir.is_joined());
}

TEST_CASE("a holder whose connection breaks has its rank again before one that asks for it") {
  VirtualWorld world(5);
  StoreProcess store(world);
  MemberProcess holder(world, 1);
  holder.join();
  Stranger late(world);
  late.listen();
  world.run_for(100ms);
  wire::StoreClaim claim;
  claim.world_size = 8;
  claim.endpoints.rank = 1;
  claim.endpoints.incarnation = 99;
  // Of an earlier life, say, whose process is no more.
  const auto ask = [&] { late.say(frame_of(wire::FrameType::store_claim, claim)); };
  world.pause(holder.port, 200ms);
  SUBCASE("before the break") {
    ask();
    world.run_for(100ms);
    world.reset(holder.port, store.port);
  }
  SUBCASE("behind it") {
    world.reset(holder.port, store.port);
    world.run_for(100ms);
    ask();
  }
  world.run_for(5s);
  MemberProcess witness(world, 0);
  witness.watch(1);
  witness.join();
  world.run_for(100ms);
  CHECK(witness.knows(holder));
  CHECK(store.counters().conflicts == 1);
}

}  // namespace
}  // namespace hixl::group::test
