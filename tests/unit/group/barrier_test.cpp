// SPDX-License-Identifier: Apache-2.0
//
// BarrierActor: nobody leaves before the last has entered, whatever the network does; failures name who is to blame.
#include "barrier_world.hpp"

#include <set>

namespace hixl::group::test {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a barrier of one rank ends at once") {
  BarrierWorld world(1, 1);
  Call& call = world.enter(0, {0}, 1s);
  CHECK(world.run_until([&] { return call.ended; }, 1ms));
  CHECK(call.result.has_value());
}

TEST_CASE("wrong rank lists are refused") {
  BarrierWorld world(3, 1);
  for (const std::vector<Rank>& ranks : {std::vector<Rank>{1, 2}, {0, 1, 1}, {}}) {
    Call& call = world.enter(0, ranks, 1s);
    CHECK(world.run_until([&] { return call.ended; }, 1ms));
    REQUIRE_FALSE(call.result.has_value());
    CHECK(call.result.error().code == ErrorCode::invalid_argument);
  }
}

TEST_CASE("S8: nobody leaves before the last has entered, over a bad network") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed ", seed);
    Random random(seed);
    Faults faults;
    faults.delay_max = Duration(static_cast<std::int64_t>(random.between(1'000, 400'000'000)));
    faults.drop_per_mille = static_cast<std::uint32_t>(random.below(500));
    faults.double_per_mille = static_cast<std::uint32_t>(random.below(500));
    faults.full_per_mille = static_cast<std::uint32_t>(random.below(200));
    const std::size_t ranks = random.between(2, 6);
    BarrierWorld world(ranks, seed, faults);
    constexpr int k_rounds = 5;
    std::vector<std::vector<Call*>> calls(ranks);
    const auto finished = [&] {
      bool all = true;
      for (Rank rank = 0; rank < ranks; ++rank) {
        auto& mine = calls[rank];
        const bool idle = mine.empty() || mine.back()->ended;
        if (idle && mine.size() < k_rounds && random.chance(100)) mine.push_back(&world.enter(rank, world.all(), 600s));
        all = all && mine.size() == k_rounds && mine.back()->ended;
      }
      return all;
    };
    REQUIRE(world.run_until(finished, 1h));
    for (int round = 0; round < k_rounds; ++round) {
      Instant last{};
      for (Rank rank = 0; rank < ranks; ++rank)
        last = std::max(last, calls[rank][static_cast<std::size_t>(round)]->entered);
      for (Rank rank = 0; rank < ranks; ++rank) {
        const Call& call = *calls[rank][static_cast<std::size_t>(round)];
        REQUIRE(call.result.has_value());
        REQUIRE(call.times_ended == 1);
        REQUIRE(call.left >= last);
      }
    }
  }
}

TEST_CASE("a deadline names those who are missing, and the barrier can be tried again") {
  BarrierWorld world(12, 7);
  std::vector<Call*> calls;
  for (const Rank rank : {0U, 1U}) calls.push_back(&world.enter(rank, world.all(), 1s));
  REQUIRE(world.run_until([&] { return calls[0]->ended && calls[1]->ended; }, 2s));
  CHECK(world.now() >= calls[0]->entered + 1s);
  CHECK(world.now() <= calls[0]->entered + 1s + 5ms);
  for (const Call* call : calls) {
    REQUIRE_FALSE(call->result.has_value());
    const Error& error = call->result.error();
    CHECK(error.code == ErrorCode::deadline_exceeded);
    CHECK(error.detail.stage == Stage::barrier);
    CHECK(error.detail.missing_count == 10);
    CHECK(error.detail.missing == std::array<Rank, 8>{2, 3, 4, 5, 6, 7, 8, 9});
  }
  calls.clear();
  for (const Rank rank : world.all()) calls.push_back(&world.enter(rank, world.all(), 1s));
  REQUIRE(
      world.run_until([&] { return std::all_of(calls.begin(), calls.end(), [](Call* c) { return c->ended; }); }, 2s));
  for (const Call* call : calls) CHECK(call->result.has_value());
}

TEST_CASE("S8: barriers stay paired after one member's call has failed") {
  // Rank 0 gives up on a barrier that the others then complete: its next call is the same barrier again.
  BarrierWorld world(3, 11);
  const auto round = [&](std::vector<Rank> ranks, Duration time) {
    std::vector<Call*> calls;
    for (const Rank rank : ranks) calls.push_back(&world.enter(rank, world.all(), time));
    return calls;
  };
  const auto ended = [](const std::vector<Call*>& calls) {
    return std::all_of(calls.begin(), calls.end(), [](const Call* call) { return call->ended; });
  };
  auto first = round({0, 1, 2}, 1s);
  REQUIRE(world.run_until([&] { return ended(first); }, 1s));
  auto early = round({0}, 1s);
  REQUIRE(world.run_until([&] { return ended(early); }, 2s));
  CHECK_FALSE(early[0]->result.has_value());
  auto late = round({1, 2}, 10s);
  REQUIRE(world.run_until([&] { return ended(late); }, 2s));
  for (const Call* call : late) CHECK(call->result.has_value());
  auto again = round({0}, 10s);
  REQUIRE(world.run_until([&] { return ended(again); }, 2s));
  CHECK(again[0]->result.has_value());
  auto next = round({0, 1}, 10s);
  world.run_for(1s);
  CHECK_FALSE(next[0]->ended);  // rank 2 has not entered
  CHECK_FALSE(next[1]->ended);
  auto last = round({2}, 10s);
  REQUIRE(world.run_until([&] { return ended(next) && ended(last); }, 1s));
}

TEST_CASE("a death ends the barriers that wait for it, and names it") {
  BarrierWorld world(4, 3);
  std::vector<Call*> calls;
  for (const Rank rank : {0U, 1U, 3U}) calls.push_back(&world.enter(rank, world.all(), 60s));
  world.run_for(100ms);
  world.restart(2);
  REQUIRE(
      world.run_until([&] { return std::all_of(calls.begin(), calls.end(), [](Call* c) { return c->ended; }); }, 1s));
  for (const Call* call : calls) {
    REQUIRE_FALSE(call->result.has_value());
    CHECK(call->result.error().code == ErrorCode::peer_lost);
    CHECK(call->result.error().detail.rank == 2);
  }
}

TEST_CASE("a death ends the barrier also when the dead had entered it, and the next one waits for its new life") {
  // Rank 2 enters, is heard, and dies while ranks 0 and 1 wait for rank 3.
  BarrierWorld world(4, 5);
  std::vector<Call*> warm;
  for (const Rank rank : world.all()) warm.push_back(&world.enter(rank, world.all(), 60s));
  REQUIRE(world.run_until([&] { return std::all_of(warm.begin(), warm.end(), [](Call* c) { return c->ended; }); }, 1s));
  Call& a = world.enter(0, world.all(), 60s);
  Call& b = world.enter(1, world.all(), 60s);
  world.enter(2, world.all(), 60s);
  world.run_for(100ms);
  world.restart(2);
  REQUIRE(world.run_until([&] { return a.ended && b.ended; }, 1s));
  for (const Call* call : {&a, &b}) {
    REQUIRE_FALSE(call->result.has_value());
    CHECK(call->result.error().code == ErrorCode::peer_lost);
    CHECK(call->result.error().detail.rank == 2);
  }
  Call& c = world.enter(0, world.all(), 60s);
  Call& d = world.enter(1, world.all(), 60s);
  Call& e = world.enter(3, world.all(), 60s);
  world.run_for(5s);
  CHECK_FALSE(c.ended);
  Call& f = world.enter(2, world.all(), 60s);
  REQUIRE(world.run_until([&] { return c.ended && d.ended && e.ended && f.ended; }, 1s));
  for (const Call* call : {&c, &d, &e, &f}) CHECK(call->result.has_value());
}

TEST_CASE("S8: calls that a death has ended count for nothing when its new life comes first") {
  BarrierWorld world(4, 8);
  std::vector<Call*> warm;
  for (const Rank rank : world.all()) warm.push_back(&world.enter(rank, world.all(), 60s));
  REQUIRE(world.run_until([&] { return std::all_of(warm.begin(), warm.end(), [](Call* c) { return c->ended; }); }, 1s));
  std::vector<Call*> ended;
  for (const Rank rank : {0U, 1U, 3U}) ended.push_back(&world.enter(rank, world.all(), 60s));
  world.run_for(100ms);
  world.restart(2);
  REQUIRE(
      world.run_until([&] { return std::all_of(ended.begin(), ended.end(), [](Call* c) { return c->ended; }); }, 1s));
  Call& fresh = world.enter(2, world.all(), 60s);
  Call& collector = world.enter(0, world.all(), 60s);
  world.run_for(5s);
  CHECK_FALSE(fresh.ended);
  CHECK_FALSE(collector.ended);
  world.enter(1, world.all(), 60s);
  world.enter(3, world.all(), 60s);
  REQUIRE(world.run_until([&] { return fresh.ended && collector.ended; }, 1s));
  CHECK(fresh.result.has_value());
}

TEST_CASE("S8: a dead life does not count when the barrier is tried again") {
  BarrierWorld world(4, 6);
  std::vector<Call*> warm;
  for (const Rank rank : world.all()) warm.push_back(&world.enter(rank, world.all(), 60s));
  REQUIRE(world.run_until([&] { return std::all_of(warm.begin(), warm.end(), [](Call* c) { return c->ended; }); }, 1s));
  Call& first = world.enter(0, world.all(), 1s);
  world.enter(2, world.all(), 60s);
  world.run_for(100ms);
  world.restart(2);
  REQUIRE(world.run_until([&] { return first.ended; }, 2s));
  CHECK(first.result.error().code == ErrorCode::peer_lost);
  Call& again = world.enter(0, world.all(), 60s);
  world.enter(1, world.all(), 60s);
  world.enter(3, world.all(), 60s);
  world.run_for(5s);
  CHECK_FALSE(again.ended);
  world.enter(2, world.all(), 60s);
  REQUIRE(world.run_until([&] { return again.ended; }, 1s));
  CHECK(again.result.has_value());
}

TEST_CASE("a new life takes the number of the others") {
  BarrierWorld world(3, 9);
  const auto ended = [](const std::vector<Call*>& calls) {
    return std::all_of(calls.begin(), calls.end(), [](const Call* call) { return call->ended; });
  };
  for (int i = 0; i < 5; ++i) {
    std::vector<Call*> calls;
    for (const Rank rank : world.all()) calls.push_back(&world.enter(rank, world.all(), 60s));
    REQUIRE(world.run_until([&] { return ended(calls); }, 1s));
  }
  world.restart(2);
  world.run_for(1s);
  Call& fresh = world.enter(2, world.all(), 60s);
  world.run_for(1s);
  CHECK_FALSE(fresh.ended);
  Call& other = world.enter(0, world.all(), 60s);
  world.run_for(1s);
  CHECK_FALSE(fresh.ended);
  CHECK_FALSE(other.ended);
  Call& last = world.enter(1, world.all(), 60s);
  REQUIRE(world.run_until([&] { return fresh.ended && other.ended && last.ended; }, 1s));
  CHECK(fresh.result.has_value());
  CHECK(world.said(2, world.group_of(0)).now == world.said(0, world.group_of(0)).now);
}

TEST_CASE("S8: deaths at any time; then the survivors and the new lives meet again") {
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed ", seed);
    Random random(seed);
    Faults faults;
    faults.delay_max = Duration(static_cast<std::int64_t>(random.between(1'000, 100'000'000)));
    faults.drop_per_mille = static_cast<std::uint32_t>(random.below(300));
    faults.double_per_mille = static_cast<std::uint32_t>(random.below(300));
    const std::size_t ranks = random.between(2, 5);
    BarrierWorld world(ranks, seed, faults);
    std::vector<Call*> open(ranks, nullptr);
    std::vector<std::vector<Call*>> good(ranks);
    bool deaths = true;
    const auto play = [&] {
      for (Rank rank = 0; rank < ranks; ++rank) {
        if (open[rank] != nullptr && open[rank]->ended && open[rank]->times_ended == 1) {
          if (!open[rank]->result) {
            ++lost;
          } else {
            // What this rank has left, every member has entered in some life of it.
            const std::uint64_t group = world.group_of(rank);
            const std::uint64_t number = world.said(rank, group).now;
            for (const Rank other : world.all()) REQUIRE(world.said(other, group).ever >= number);
            if (!deaths) good[rank].push_back(open[rank]);
          }
          open[rank] = nullptr;
        }
        if (deaths && random.chance(2)) {
          open[rank] = nullptr;
          world.restart(rank);
        }
        if (open[rank] == nullptr && random.chance(50)) {
          const Duration time(static_cast<std::int64_t>(random.between(1'000'000, 3'000'000'000)));
          open[rank] = &world.enter(rank, world.all(), time);
        }
      }
      return !deaths && std::all_of(good.begin(), good.end(), [](const auto& mine) { return mine.size() > 10; });
    };
    world.run_until(play, 5s);
    deaths = false;
    world.faults = {};
    // Liveness: all go on, at one pace.
    REQUIRE(world.run_until(play, 60s));
    std::set<std::uint64_t> numbers;
    for (const Rank rank : world.all()) {
      numbers.insert(world.said(rank, world.group_of(0)).now);
    }
    REQUIRE(*numbers.rbegin() - *numbers.begin() <= 1);
  }
  CHECK(lost > 0);
}

TEST_CASE("two groups, and two calls of one group, go side by side") {
  BarrierWorld world(4, 13);
  Call& left0 = world.enter(0, {1, 0}, 60s);
  Call& right = world.enter(2, {2, 3}, 60s);
  Call& whole = world.enter(0, world.all(), 60s);
  Call& second = world.enter(0, {0, 1}, 60s);
  world.run_for(1s);
  CHECK_FALSE(left0.ended);
  Call& left1 = world.enter(1, {0, 1}, 60s);
  REQUIRE(world.run_until([&] { return left0.ended && left1.ended; }, 1s));
  world.run_for(1s);
  CHECK_FALSE(right.ended);
  CHECK_FALSE(whole.ended);
  CHECK_FALSE(second.ended);
  world.enter(1, {0, 1}, 60s);
  REQUIRE(world.run_until([&] { return second.ended; }, 1s));
  CHECK(second.result.has_value());
  Call& right3 = world.enter(3, {3, 2}, 60s);
  REQUIRE(world.run_until([&] { return right.ended && right3.ended; }, 1s));
  CHECK_FALSE(whole.ended);
}

TEST_CASE("the missing are named also when the collector is one of them") {
  for (const bool cut_off : {false, true}) {  // its program has not entered; nobody hears of it at all
    CAPTURE(cut_off);
    Faults faults;
    if (cut_off) faults.cut_off = 0;
    BarrierWorld world(6, 23, faults);
    std::vector<Call*> calls;
    for (const Rank rank : {1U, 2U, 4U, 5U}) calls.push_back(&world.enter(rank, world.all(), 1s));
    REQUIRE(
        world.run_until([&] { return std::all_of(calls.begin(), calls.end(), [](Call* c) { return c->ended; }); }, 2s));
    for (const Call* call : calls) {
      REQUIRE_FALSE(call->result.has_value());
      CHECK(call->result.error().code == ErrorCode::deadline_exceeded);
      CHECK(call->result.error().detail.missing_count == 2);
      CHECK(call->result.error().detail.missing[0] == 0);
      CHECK(call->result.error().detail.missing[1] == 3);
    }
  }
}

TEST_CASE("a death that only another member sees ends the barrier of all") {
  BarrierWorld world(4, 29);
  std::vector<Call*> calls;
  for (const Rank rank : {0U, 1U, 3U}) calls.push_back(&world.enter(rank, world.all(), 60s));
  world.run_for(100ms);
  world.report_death(2, 3);  // rank 3 alone
  REQUIRE(
      world.run_until([&] { return std::all_of(calls.begin(), calls.end(), [](Call* c) { return c->ended; }); }, 1s));
  for (const Call* call : calls) CHECK(call->result.error().detail.rank == 2);
}

TEST_CASE("stop ends everything with STOPPED, and what comes later too") {
  BarrierWorld world(2, 17);
  Call& first = world.enter(0, world.all(), 60s);
  Call& waiting = world.enter(0, world.all(), 60s);
  world.run_for(10ms);
  world.stop(0);
  for (const Call* call : {&first, &waiting}) {
    CHECK(call->times_ended == 1);
    REQUIRE_FALSE(call->result.has_value());
    CHECK(call->result.error().code == ErrorCode::stopped);
  }
  Call& late = world.enter(0, world.all(), 60s);
  REQUIRE(world.run_until([&] { return late.ended; }, 10ms));
  CHECK(late.result.error().code == ErrorCode::stopped);
}

TEST_CASE("a healthy barrier costs two notes a member, and repeats nothing") {
  BarrierWorld world(8, 19);
  std::uint64_t sent = 0;
  for (int i = 0; i < 3; ++i) {
    sent = world.notes_sent;
    std::vector<Call*> calls;
    for (const Rank rank : world.all()) calls.push_back(&world.enter(rank, world.all(), 60s));
    REQUIRE(
        world.run_until([&] { return std::all_of(calls.begin(), calls.end(), [](Call* c) { return c->ended; }); }, 1s));
  }
  CHECK(world.notes_sent - sent == 2 * 7);
}

}  // namespace
}  // namespace hixl::group::test
