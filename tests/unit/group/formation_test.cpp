// SPDX-License-Identifier: Apache-2.0
//
// Making groups: all agree or all hear why not; a group made again is another group, and a new life is not in the old.
#include "barrier_world.hpp"

#include <set>

namespace hixl::group::test {
namespace {

using namespace std::chrono_literals;
using Pages = FormationActor::Pages;

bool all_ended(const std::vector<CreateCall*>& calls) {
  return std::all_of(calls.begin(), calls.end(), [](const CreateCall* call) { return call->ended(); });
}
bool all_ended(const std::vector<Call*>& calls) {
  return std::all_of(calls.begin(), calls.end(), [](const Call* call) { return call->ended; });
}
void check_blames(const CreateCall& call, ErrorCode code, Rank rank) {
  CHECK(call.times_ended == 1);
  REQUIRE_FALSE(call.result.has_value());
  CHECK(call.result.error().code == code);
  CHECK(call.result.error().detail.rank == rank);
  CHECK(call.result.error().detail.stage == Stage::group);
}

TEST_CASE("F26: a group of some ranks is made over a bad network, and its barrier is among them") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed ", seed);
    Random random(seed);
    Faults faults;
    faults.delay_max = Duration(static_cast<std::int64_t>(random.between(1'000, 300'000'000)));
    faults.drop_per_mille = static_cast<std::uint32_t>(random.below(400));
    faults.double_per_mille = static_cast<std::uint32_t>(random.below(400));
    BarrierWorld world(5, seed, faults);
    if (seed % 2 == 0) world.pages = Pages::if_shared;
    const std::vector<Rank> members{4, 1, 3};
    const std::uint64_t name = world.make(members);
    for (int round = 0; round < 3; ++round) {
      std::vector<Call*> calls{&world.enter_group(4, name, 600s), &world.enter_group(3, name, 600s)};
      world.run_for(500ms);
      CHECK_FALSE(calls[0]->ended);
      CHECK_FALSE(calls[1]->ended);
      calls.push_back(&world.enter_group(1, name, 600s));
      REQUIRE(world.run_until([&] { return all_ended(calls); }, 600s));
      for (const Call* call : calls) REQUIRE(call->result.has_value());
    }
    for (const Rank rank : members) world.close(rank, name);
    world.faults = {};
    REQUIRE(world.run_until([&] { return world.groups(1) == 0; }, 60s));
    CHECK(world.groups(3) + world.groups(4) == 0);
  }
}

TEST_CASE("a group of one is made at once") {
  BarrierWorld world(2, 1);
  const std::uint64_t name = world.make({1});
  Call& call = world.enter_group(1, name, 1s);
  REQUIRE(world.run_until([&] { return call.ended; }, 1ms));
  CHECK(call.result.has_value());
  world.close(1, name);
  CHECK(world.groups(1) == 0);
}

TEST_CASE("members that mean another list, or other options, are named to all") {
  SUBCASE("another list with the same collector") {
    BarrierWorld world(4, 3);
    std::vector<CreateCall*> calls;
    for (const Rank rank : {0U, 1U, 2U}) calls.push_back(&world.create(rank, {0, 1, 2, 3}, 60s));
    world.run_for(100ms);
    calls.push_back(&world.create(3, {0, 1, 3}, 60s));
    REQUIRE(world.run_until([&] { return all_ended(calls); }, 1s));
    for (const Rank rank : {0U, 1U, 2U}) check_blames(*calls[rank], ErrorCode::invalid_argument, 3);
    check_blames(*calls[3], ErrorCode::invalid_argument, 0);
  }
  SUBCASE("another order") {
    BarrierWorld world(2, 4);
    const std::vector<CreateCall*> calls{&world.create(0, {0, 1}, 60s), &world.create(1, {1, 0}, 60s)};
    REQUIRE(world.run_until([&] { return all_ended(calls); }, 1s));
    check_blames(*calls[0], ErrorCode::invalid_argument, 1);
  }
  SUBCASE("other options") {
    BarrierWorld world(3, 5);
    std::vector<CreateCall*> calls{&world.create(0, {0, 1, 2}, 60s, 7), &world.create(2, {0, 1, 2}, 60s, 7)};
    world.run_for(100ms);
    calls.push_back(&world.create(1, {0, 1, 2}, 60s, 8));
    REQUIRE(world.run_until([&] { return all_ended(calls); }, 1s));
    check_blames(*calls[0], ErrorCode::invalid_argument, 1);
    check_blames(*calls[1], ErrorCode::invalid_argument, 1);
    check_blames(*calls[2], ErrorCode::invalid_argument, 0);
  }
  SUBCASE("a list with another collector: known at the deadline") {
    BarrierWorld world(3, 6);
    CreateCall& mine = world.create(0, {0, 1}, 2s);
    CreateCall& other = world.create(1, {1, 2}, 2s);
    REQUIRE(world.run_until([&] { return mine.ended() && other.ended(); }, 3s));
    check_blames(mine, ErrorCode::invalid_argument, 1);
    REQUIRE_FALSE(other.result.has_value());
    CHECK(other.result.error().code == ErrorCode::deadline_exceeded);
    CHECK(other.result.error().detail.missing_count == 1);
    CHECK(other.result.error().detail.missing[0] == 2);
  }
}

TEST_CASE("the deadline names who is missing, and the same group can be made afterwards") {
  for (const Rank absent : {0U, 5U}) {  // the collector, and another
    CAPTURE(absent);
    BarrierWorld world(6, 7);
    std::vector<CreateCall*> calls;
    for (const Rank rank : world.all()) {
      if (rank != absent) calls.push_back(&world.create(rank, world.all(), 1s));
    }
    REQUIRE(world.run_until([&] { return all_ended(calls); }, 2s));
    for (const CreateCall* call : calls) {
      REQUIRE_FALSE(call->result.has_value());
      CHECK(call->result.error().code == ErrorCode::deadline_exceeded);
      CHECK(call->result.error().detail.missing_count == 1);
      CHECK(call->result.error().detail.missing[0] == absent);
    }
    world.run_for(10ms);  // what is still under way of the first try
    static_cast<void>(world.make(world.all()));
  }
}

TEST_CASE("one create call a tag") {
  BarrierWorld world(3, 8);
  CreateCall& first = world.create(0, {0, 1}, 60s);
  CreateCall& second = world.create(0, {0, 2}, 60s);
  CreateCall& tagged = world.create(0, {0, 2}, 60s, 0, 9);
  CreateCall& other = world.create(2, {0, 2}, 60s, 0, 9);
  REQUIRE(world.run_until([&] { return second.ended() && tagged.ended() && other.ended(); }, 1s));
  CHECK(second.result.error().code == ErrorCode::busy);
  CHECK(tagged.result.has_value());
  CHECK_FALSE(first.ended());
  CreateCall& late = world.create(1, {0, 1}, 60s);
  REQUIRE(world.run_until([&] { return first.ended() && late.ended(); }, 1s));
  CHECK(first.result.has_value());
}

TEST_CASE("a member that dies while the group is made is named to all") {
  for (const Rank dead : {0U, 2U}) {
    CAPTURE(dead);
    BarrierWorld world(4, 9);
    std::vector<CreateCall*> calls;
    for (const Rank rank : {0U, 1U, 2U}) {
      CreateCall& call = world.create(rank, world.all(), 60s);
      if (rank != dead) calls.push_back(&call);
    }
    world.run_for(100ms);
    world.restart(dead);
    REQUIRE(world.run_until([&] { return all_ended(calls); }, 1s));
    for (const CreateCall* call : calls) check_blames(*call, ErrorCode::peer_lost, dead);
  }
}

TEST_CASE("S8: a group holds the lives that made it, not those that come after") {
  for (const Pages pages : {Pages::none, Pages::if_shared}) {
    CAPTURE(pages == Pages::none);
    BarrierWorld world(4, 10);
    world.pages = pages;
    const std::uint64_t name = world.make(world.all());
    std::vector<Call*> calls;
    for (const Rank rank : {0U, 1U, 3U}) calls.push_back(&world.enter_group(rank, name, 60s));
    world.run_for(100ms);
    world.restart(2);
    REQUIRE(world.run_until([&] { return all_ended(calls); }, 1s));
    for (const Call* call : calls) {
      REQUIRE_FALSE(call->result.has_value());
      CHECK(call->result.error().code == ErrorCode::peer_lost);
      CHECK(call->result.error().detail.rank == 2);
    }
    // The new life has no such group, and the others hear of the dead one as often as they try.
    Call& stranger = world.enter_group(2, name, 60s);
    calls.clear();
    for (const Rank rank : {3U, 0U}) calls.push_back(&world.enter_group(rank, name, 60s));
    REQUIRE(world.run_until([&] { return all_ended(calls) && stranger.ended; }, 1s));
    CHECK(stranger.result.error().code == ErrorCode::invalid_argument);
    for (const Call* call : calls) CHECK(call->result.error().code == ErrorCode::peer_lost);
    // Made again, with the new life, it is another group.
    const std::uint64_t again = world.make(world.all());
    CHECK(again != name);
    calls.clear();
    for (const Rank rank : world.all()) calls.push_back(&world.enter_group(rank, again, 60s));
    REQUIRE(world.run_until([&] { return all_ended(calls); }, 1s));
    for (const Call* call : calls) CHECK(call->result.has_value());
  }
}

TEST_CASE("S8: a note from another life than the one that made the group is not counted") {
  BarrierWorld world(2, 18);
  const std::uint64_t name = world.make({0, 1});
  Call& call = world.enter_group(0, name, 1s);
  wire::Barrier note;
  note.group = name;
  note.number = 2;
  note.call = 1;
  world.inject(0, {1, 77}, note);
  REQUIRE(world.run_until([&] { return call.ended; }, 2s));
  REQUIRE_FALSE(call.result.has_value());
  CHECK(call.result.error().code == ErrorCode::deadline_exceeded);
  CHECK(call.result.error().detail.missing[0] == 1);
}

TEST_CASE("a session that ends by lease is the end of a made group, for a barrier under way and all later ones") {
  for (const Pages pages : {Pages::none, Pages::if_shared}) {
    CAPTURE(pages == Pages::none);
    BarrierWorld world(3, 14);
    world.pages = pages;
    const std::uint64_t name = world.make(world.all());
    std::vector<Call*> calls{&world.enter_group(0, name, 60s), &world.enter_group(1, name, 60s)};
    world.run_for(10ms);
    world.report_death(2, 0, peer::PeerEnd::session);
    REQUIRE(world.run_until([&] { return all_ended(calls); }, 1s));
    calls.push_back(&world.enter_group(1, name, 60s));
    calls.push_back(&world.enter_group(2, name, 60s));  // it lives after all
    REQUIRE(world.run_until([&] { return all_ended(calls); }, 1s));
    for (const Call* call : calls) {
      REQUIRE_FALSE(call->result.has_value());
      CHECK(call->result.error().code == ErrorCode::peer_lost);
      CHECK(call->result.error().detail.rank == 2);
    }
  }
}

TEST_CASE("F28: destroyed and made again, nothing of the earlier group counts") {
  for (const Pages pages : {Pages::none, Pages::if_shared}) {
    CAPTURE(pages == Pages::none);
    BarrierWorld world(4, 11);
    world.pages = pages;
    std::set<std::uint64_t> names;
    for (int life = 0; life < 20; ++life) {
      const std::uint64_t name = world.make(world.all());
      REQUIRE(names.insert(name).second);
      // Rank 1 leaves the group one barrier early: what it has entered here must not open the next group's barrier.
      std::vector<Call*> calls;
      for (const Rank rank : world.all()) calls.push_back(&world.enter_group(rank, name, 60s));
      REQUIRE(world.run_until([&] { return all_ended(calls); }, 1s));
      Call& lonely = world.enter_group(1, name, 60s);
      world.close(1, name);
      REQUIRE(world.run_until([&] { return lonely.ended; }, 1s));
      CHECK(lonely.result.error().code == ErrorCode::cancelled);
      Call& left = world.enter_group(2, name, 60s);
      REQUIRE(world.run_until([&] { return left.ended; }, 1s));
      CHECK(left.result.error().code == ErrorCode::peer_gone);
      CHECK(left.result.error().detail.rank == 1);
      for (const Rank rank : {0U, 2U, 3U}) world.close(rank, name);
      REQUIRE(world.run_until([&] { return world.groups(0) == 0; }, 1s));
      for (const Rank rank : world.all()) CHECK(world.groups(rank) == 0);
    }
  }
}

TEST_CASE("a collector that has closed the group still releases the last barrier") {
  // The release is lost: the member asks, and is answered by a collector that has closed meanwhile.
  BarrierWorld world(2, 12);
  const std::uint64_t name = world.make({0, 1});
  Call& member = world.enter_group(1, name, 60s);
  world.run_for(10ms);
  world.faults.drop_per_mille = 1000;
  Call& collector = world.enter_group(0, name, 60s);
  REQUIRE(world.run_until([&] { return collector.ended; }, 1ms));
  CHECK(collector.result.has_value());
  world.close(0, name);
  CHECK(world.groups(0) == 1);
  world.faults.drop_per_mille = 0;
  REQUIRE(world.run_until([&] { return member.ended; }, 1s));
  CHECK(member.result.has_value());
  Call& more = world.enter_group(1, name, 60s);
  REQUIRE(world.run_until([&] { return more.ended; }, 1s));
  CHECK(more.result.error().code == ErrorCode::peer_gone);
  world.close(1, name);
  REQUIRE(world.run_until([&] { return world.groups(0) == 0; }, 1s));
}

TEST_CASE("with a page, barriers cost messages only for those who wait by message") {
  BarrierWorld world(4, 15);
  world.pages = Pages::if_shared;
  const std::uint64_t name = world.make(world.all());
  const auto round = [&] {
    const std::uint64_t before = world.notes_sent;
    std::vector<Call*> calls;
    for (const Rank rank : world.all()) calls.push_back(&world.enter_group(rank, name, 60s));
    REQUIRE(world.run_until([&] { return all_ended(calls); }, 1s));
    for (const Call* call : calls) REQUIRE(call->result.has_value());
    return world.notes_sent - before;
  };
  CHECK(round() == 2 * 3);  // the first goes by messages
  CHECK(round() == 3);
  // Deadlines name the missing, and the barrier is the same when it is tried again.
  Call& early = world.enter_group(2, name, 50ms);
  REQUIRE(world.run_until([&] { return early.ended; }, 1s));
  REQUIRE_FALSE(early.result.has_value());
  CHECK(early.result.error().code == ErrorCode::deadline_exceeded);
  CHECK(early.result.error().detail.missing_count == 3);
  CHECK(early.result.error().detail.missing[0] == 0);
  CHECK(early.result.error().detail.missing[2] == 3);
  CHECK(round() == 3);
}

TEST_CASE("a group of which one member has no page goes by messages") {
  BarrierWorld world(3, 16);
  std::vector<CreateCall*> creates;
  for (const Rank rank : world.all()) {
    world.pages = rank == 1 ? Pages::none : Pages::if_shared;
    creates.push_back(&world.create(rank, world.all(), 60s));
  }
  REQUIRE(world.run_until([&] { return all_ended(creates); }, 1s));
  CHECK(creates[2]->page != nullptr);
  CHECK(creates[1]->page == nullptr);
  const std::uint64_t name = *creates[0]->result;
  for (int i = 0; i < 3; ++i) {
    std::vector<Call*> calls;
    for (const Rank rank : world.all()) calls.push_back(&world.enter_group(rank, name, 60s));
    REQUIRE(world.run_until([&] { return all_ended(calls); }, 1s));
    for (const Call* call : calls) CHECK(call->result.has_value());
  }
  CHECK_FALSE(creates[2]->page->started());
}

TEST_CASE("stop ends creates with STOPPED") {
  BarrierWorld world(2, 13);
  CreateCall& call = world.create(1, {0, 1}, 60s);
  world.stop(1);
  check_blames(call, ErrorCode::stopped, 1);
  CreateCall& late = world.create(1, {0, 1}, 60s);
  REQUIRE(world.run_until([&] { return late.ended(); }, 1ms));
  CHECK(late.result.error().code == ErrorCode::stopped);
}

}  // namespace
}  // namespace hixl::group::test
