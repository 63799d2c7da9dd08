// SPDX-License-Identifier: Apache-2.0
//
// Fences and flushes: what is posted behind a fence begins when everything before it has ended, whatever becomes of the
// fence itself and of the network. (S7)
#include <array>

#include "peer_world.hpp"

using namespace hixl;
using namespace hixl::peer::test;

namespace {

bool same(const Life& a, const Life& b, std::uint64_t at, std::uint64_t size) {
  return std::memcmp(a.memory.data() + at, b.memory.data() + at, size) == 0;
}

/// A put that has not moved a byte yet.
bool untouched(const Life& a, const std::vector<std::byte>& before, std::uint64_t at, std::uint64_t size) {
  return std::memcmp(a.memory.data() + at, before.data() + at, size) == 0;
}

}  // namespace

TEST_CASE("F110: what is posted behind a fence begins after everything before it has ended (S7)") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, seed % 2 == 0);
    world.meet(0, 1);
    const auto before = world[1].memory;
    std::vector<Job*> first;
    for (std::uint64_t i = 0; i < 6; ++i) first.push_back(&world[0].put(world[1], 8192 + i * 70'000, 70'000));
    first.push_back(&world[0].get(world[1], 600'000, 50'000));
    Job& fence = world[0].fence(world[1]);
    Job& small = world[0].put(world[1], 700'000, 8, seconds(30), 1);
    Job& large = world[0].put(world[1], 710'000, 100'000);
    const auto open = [&] { return !std::all_of(first.begin(), first.end(), [](Job* job) { return job->ended(); }); };
    while (open()) {
      REQUIRE(untouched(world[1], before, 700'000, 8));
      REQUIRE(untouched(world[1], before, 710'000, 100'000));
      REQUIRE_FALSE(fence.ended());
      REQUIRE(world.world.step());
    }
    REQUIRE(world.run([&] { return small.ended() && large.ended(); }));
    CHECK(fence.code == ErrorCode::ok);
    CHECK(small.code == ErrorCode::ok);
    CHECK(large.code == ErrorCode::ok);
    for (const Job* job : first) CHECK(job->order < fence.order);
    CHECK(fence.order < small.order);
    CHECK(same(world[0], world[1], 710'000, 100'000));
    CHECK(world[0].known(world[1]).gate.begin_order(1));  // none is open any more
  }
}

TEST_CASE("F110: fences of fences, with broken links between (S7)") {
  std::uint64_t breaks = 0;
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, seed % 2 == 0);
    world.meet(0, 1);
    runtime::FaultPlan plan;
    plan.reset_per_mille = 30;
    plan.one_sided_per_mille = 300;
    plan.one_sided_max = milliseconds(300);
    world.world.set_plan(plan);
    links::SimPlan weather;
    weather.break_per_mille = 30;
    weather.one_sided_per_mille = 300;
    world.fabric.set_plan(weather);
    // Every put of a round takes the same place; what stands there at the end is what the last one brought.
    std::vector<std::vector<Job*>> rounds;
    std::vector<Job*> fences;
    for (std::uint64_t round = 0; round < 12; ++round) {
      rounds.emplace_back();
      for (std::uint64_t i = 0; i < 3; ++i) {
        rounds.back().push_back(&world[0].post(TransferVerb::put, world[1], 30'000 * round + 10'000 * i,
                                               700'000 + 10'000 * i, 10'000, seconds(100)));
      }
      fences.push_back(&world[0].fence(world[1], seconds(100)));
      if (round % 3 == 0) world.world.run_for(milliseconds(1));
    }
    REQUIRE(world.run([&] { return fences.back()->ended(); }, seconds(300)));
    for (std::size_t round = 0; round < rounds.size(); ++round) {
      for (const Job* job : rounds[round]) {
        REQUIRE(job->ended());
        REQUIRE(job->order < fences[round]->order);
        if (round > 0) REQUIRE(job->order > fences[round - 1]->order);
      }
    }
    if (std::all_of(rounds.back().begin(), rounds.back().end(), [](Job* job) { return job->code == ErrorCode::ok; })) {
      CHECK(std::memcmp(world[0].memory.data() + 330'000, world[1].memory.data() + 700'000, 30'000) == 0);
    }
    breaks += world[0].counters.link_failures;
  }
  CHECK(breaks > 10);
}

TEST_CASE("a fence that is cancelled, or was over before it began, orders all the same, and a flush leaves nothing") {
  for (const bool begun : {false, true}) {
    CAPTURE(begun);
    PeerWorld world(70);
    world.meet(0, 1);
    const auto before = world[1].memory;
    Job& first = world[0].put(world[1], 8192, 400'000);
    const Error over(ErrorCode::cancelled);
    Job& fence = world[0].order(hixl::peer::Operation::Kind::fence, world[1], seconds(30), begun ? nullptr : &over);
    Job& flush = world[0].order(hixl::peer::Operation::Kind::flush, world[1], seconds(30), begun ? nullptr : &over);
    if (begun) {
      world[0].to(1).cancel(fence.operation);
      world[0].to(1).cancel(flush.operation);
      world[0].wake();
    }
    Job& behind = world[0].put(world[1], 700'000, 8);
    while (!first.ended()) {
      REQUIRE(untouched(world[1], before, 700'000, 8));
      REQUIRE(world.world.step());
    }
    REQUIRE(world.run([&] { return behind.ended(); }));
    CHECK(fence.code == ErrorCode::cancelled);
    CHECK(flush.code == ErrorCode::cancelled);
    CHECK(fence.order < first.order);
    CHECK(first.code == ErrorCode::ok);
    CHECK(behind.code == ErrorCode::ok);
    CHECK(world[0].known(world[1]).gate.begin_order(1));  // none is open any more
  }
}

TEST_CASE("the order outlives its fence: deadline or cancel end the request only") {
  PeerWorld world(31);
  world.meet(0, 1);
  world.world.clog(world[0].port, world[1].port, milliseconds(400));
  const auto before = world[1].memory;
  Job& first = world[0].put(world[1], 8192, 100'000);
  Job& fence = world[0].fence(world[1], milliseconds(20));
  Job& behind = world[0].put(world[1], 500'000, 100);
  Job& hurried = world[0].put(world[1], 600'000, 100, milliseconds(50));
  REQUIRE(world.run([&] { return fence.ended() && hurried.ended(); }));
  CHECK(fence.code == ErrorCode::deadline_exceeded);
  CHECK(hurried.code == ErrorCode::deadline_exceeded);
  CHECK(hurried.error.detail.stage == Stage::fence);  // that is what it waited for
  CHECK_FALSE(first.ended());
  CHECK_FALSE(world[0].known(world[1]).gate.begin_order(1));  // the lane stays closed
  while (!first.ended()) {
    REQUIRE(untouched(world[1], before, 500'000, 100));
    REQUIRE(world.world.step());
  }
  REQUIRE(world.run([&] { return behind.ended(); }));
  CHECK(behind.code == ErrorCode::ok);
  CHECK(same(world[0], world[1], 500'000, 100));
  CHECK(untouched(world[1], before, 600'000, 100));
  CHECK(world[0].known(world[1]).gate.begin_order(1));
}

TEST_CASE("a fence with nothing before it ends at once, also to a rank nobody has heard of") {
  PeerWorld world(32, 3);
  Job& early = world[0].fence(world[2]);
  REQUIRE(world.run([&] { return early.ended(); }, seconds(1)));
  CHECK(early.code == ErrorCode::ok);
  world.meet(0, 1);
  Job& idle = world[0].fence(world[1]);
  Job& again = world[0].fence(world[1]);
  REQUIRE(world.run([&] { return idle.ended() && again.ended(); }, milliseconds(1)));
  CHECK(idle.code == ErrorCode::ok);
  Job& put = world[0].put(world[1], 0, 100);
  REQUIRE(world.run([&] { return put.ended(); }));
  CHECK(put.code == ErrorCode::ok);
}

TEST_CASE("a fence, and what waits behind it, end with the peer") {
  PeerWorld world(33);
  world.meet(0, 1);
  world.world.clog(world[0].port, world[1].port, seconds(100));
  Job& first = world[0].put(world[1], 8192, 100'000);
  Job& fence = world[0].fence(world[1]);
  Job& behind = world[0].put(world[1], 500'000, 100);
  SUBCASE("killed") { world.kill(1); }
  SUBCASE("stopped here") { world[0].to(1).stop(world.world.now()); }
  REQUIRE(world.run([&] { return first.ended() && fence.ended() && behind.ended(); }, seconds(100)));
  CHECK(fence.code == behind.code);
  CHECK((fence.code == ErrorCode::peer_lost || fence.code == ErrorCode::stopped));
  world.world.run_for(seconds(1));
  CHECK(world[0].directory->memory(1)->gate.begin_order(1));
}

TEST_CASE("mail of two threads that overtook each other is put in order again") {
  // As it comes from the mailbox: places say what was posted first, arrival does not.
  PeerWorld world(34);
  world.meet(0, 1);
  const auto before = world[1].memory;
  auto& order = world[0].known(world[1]).order;
  const std::uint64_t first_place = order.place_of_transfer();
  const std::uint64_t fence_place = order.begin();
  const std::uint64_t behind_place = order.place_of_transfer();
  REQUIRE(first_place < fence_place);
  REQUIRE(fence_place < behind_place);
  REQUIRE(world[0].known(world[1]).gate.begin_order(10));
  const auto make = [&](std::uint64_t at, std::uint64_t size, std::uint64_t place) -> Job& {
    Job& job = *world[0].jobs.emplace_back(std::make_unique<Job>());
    job.operation.slot = static_cast<std::uint32_t>(world[0].jobs.size() - 1);
    job.operation.rank = 1;
    job.operation.place = place;
    job.operation.deadline = world.world.now() + seconds(30);
    job.operation.single = {.local = world[0].memory.data() + at,
                            .device = &memory::host_device(),
                            .region = world[1].region.key,
                            .token = world[1].region.token,
                            .offset = at,
                            .size = size};
    return job;
  };
  Job& first = make(8192, 100'000, first_place);
  Job& fence = make(0, 0, fence_place);
  fence.operation.kind = peer::Operation::Kind::fence;
  Job& behind = make(500'000, 100, behind_place);
  // The last of the three is taken out of the mailbox first. The others, of other senders, come into it behind the
  // look that found this one, but before the actor acts on it.
  struct Late final : runtime::MailTarget, runtime::Task {
    void on_mail(const runtime::Mail& mail) override { life->to(1).post(jobs[mail.a]->operation); }
    void run() override {
      for (const std::uint32_t i : {0U, 1U}) CHECK(life->loop->mailbox().post({this, 0, i, 0}));
    }
    Life* life = nullptr;
    std::array<Job*, 2> jobs{};
  } late;
  late.life = &world[0];
  late.jobs = {&fence, &first};
  world[0].loop->defer(late);
  SUBCASE("an operation comes before its fence") { world[0].to(1).post(behind.operation); }
  SUBCASE("a fence comes before what it is behind") {
    late.jobs = {&behind, &first};
    world[0].to(1).post(fence.operation);
  }
  order.sent();
  world[0].wake();
  while (!first.ended()) {
    REQUIRE(untouched(world[1], before, 500'000, 100));
    REQUIRE_FALSE(fence.ended());
    REQUIRE(world.world.step());
  }
  REQUIRE(world.run([&] { return behind.ended(); }));
  CHECK(fence.order > first.order);
  CHECK(behind.order > fence.order);
  CHECK(same(world[0], world[1], 500'000, 100));
}
