// SPDX-License-Identifier: Apache-2.0
//
// Operations between two peers: whatever the network does, each ends once, in time, and with the truth.
#include "peer_world.hpp"

using namespace hixl;
using namespace hixl::peer::test;

namespace {

bool same(const Life& a, const Life& b, std::uint64_t at, std::uint64_t size) {
  return std::memcmp(a.memory.data() + at, b.memory.data() + at, size) == 0;
}

/// A kind that executes no words (signals, atomics), over sockets.
class WordlessFactory final : public links::LinkFactory {
 public:
  const links::LinkCaps& caps() const noexcept override { return caps_; }
  Result<void> available() const override { return {}; }
  std::unique_ptr<links::Link> make(const links::LinkIdentity& identity, std::unique_ptr<links::FrameStream> stream,
                                    const links::LinkServices& services, links::LinkEvents& events) override {
    return inner_->make(identity, std::move(stream), services, events);
  }

 private:
  std::unique_ptr<links::LinkFactory> inner_ = links::make_tcp_factory();
  const links::LinkCaps caps_{.words = false};
};

}  // namespace

TEST_CASE("words are not posted on a link that executes none; with no other kind they are refused at once") {
  for (const bool alone : {true, false}) {
    CAPTURE(alone);
    PeerWorld world(12);
    for (const Rank rank : {Rank{0}, Rank{1}}) {
      Life& life = world[rank];
      life.factories.push_back(std::make_unique<WordlessFactory>());
      auto& kinds = life.services->links;
      if (alone) kinds.clear();
      kinds.insert(kinds.begin(), {life.factories.back().get(), LinkId{5}});
    }
    world.meet(0, 1);
    if (!alone) REQUIRE(world.run([&] { return world[0].links_up(1) == 2; }));
    const std::uint64_t before = world[1].word(0);
    Job& signalled = world[0].put(world[1], 4096, 200'000, seconds(30), 3);
    REQUIRE(world.run([&] { return signalled.ended(); }));
    CHECK(signalled.code == (alone ? ErrorCode::transport_unavailable : ErrorCode::ok));
    CHECK(world[1].word(0) == before + (alone ? 0 : 3));
    CHECK(same(world[0], world[1], 4096, 200'000) != alone);
    Job& added = world[0].add(world[1], 8, 4);
    const std::uint64_t word = world[1].word(8);
    REQUIRE(world.run([&] { return added.ended(); }));
    CHECK(added.code == (alone ? ErrorCode::transport_unavailable : ErrorCode::ok));
    CHECK(world[1].word(8) == word + (alone ? 0 : 4));
    Job& put = world[0].put(world[1], 4096, 200'000);
    REQUIRE(world.run([&] { return put.ended(); }));
    CHECK(put.code == ErrorCode::ok);
    CHECK(same(world[0], world[1], 4096, 200'000));
  }
}

TEST_CASE("the first need connects; puts and gets move their bytes and nothing else") {
  PeerWorld world(11);
  CHECK(world[0].links_up(1) == 0);
  world.meet(0, 1);
  CHECK(world[0].links_up(1) == 1);
  const auto before = world[1].memory;
  Job& put = world[0].put(world[1], 4096, 200'000);
  REQUIRE(world.run([&] { return put.ended(); }));
  CHECK(put.code == ErrorCode::ok);
  CHECK(same(world[0], world[1], 4096, 200'000));
  CHECK(std::memcmp(before.data(), world[1].memory.data(), 4096) == 0);
  CHECK(std::memcmp(before.data() + 204'096, world[1].memory.data() + 204'096, before.size() - 204'096) == 0);
  Job& get = world[0].get(world[1], 500'000, 300'000);
  REQUIRE(world.run([&] { return get.ended(); }));
  CHECK(get.code == ErrorCode::ok);
  CHECK(same(world[0], world[1], 500'000, 300'000));
}

TEST_CASE("an operation of no bytes ends well, and signals") {
  PeerWorld world(12);
  world.meet(0, 1);
  const std::uint64_t before = world[1].word(0);
  Job& plain = world[0].put(world[1], 64, 0);
  Job& signalling = world[0].put(world[1], 64, 0, seconds(30), 5);
  REQUIRE(world.run([&] { return plain.ended() && signalling.ended(); }));
  CHECK(plain.code == ErrorCode::ok);
  CHECK(signalling.code == ErrorCode::ok);
  CHECK(world[1].word(0) == before + 5);
}

TEST_CASE("S40 a region that nobody published, or with the wrong token, is refused at once and not retried") {
  PeerWorld world(13);
  world.meet(0, 1);
  const auto key = world[1].region.key;
  world[1].region.key.id += 1;
  Job& unknown = world[0].put(world[1], 0, 100);
  world[1].region.key = key;
  world[1].region.token.low ^= 1U;
  const Instant start = world.world.now();
  Job& denied = world[0].put(world[1], 0, 300'000);  // several chunks, all refused
  Job& denied_get = world[0].get(world[1], 0, 300'000);
  REQUIRE(world.run([&] { return unknown.ended() && denied.ended() && denied_get.ended(); }));
  CHECK(unknown.code == ErrorCode::stale);
  CHECK(denied.code == ErrorCode::access_denied);
  CHECK(denied_get.code == ErrorCode::access_denied);
  CHECK(world.world.now() - start < milliseconds(100));
  CHECK(world[0].links_up(1) == 1);
}

TEST_CASE("a flush ends after everything before it, and not before") {
  PeerWorld world(14);
  world.meet(0, 1);
  Job& idle = world[0].flush(world[1]);
  REQUIRE(world.run([&] { return idle.ended(); }, seconds(1)));
  Job& first = world[0].put(world[1], 0, 700'000);
  Job& second = world[0].get(world[1], 700'000, 100'000);
  Job& flush = world[0].flush(world[1]);
  Job& later = world[0].put(world[1], 900'000, 100);
  REQUIRE(world.run([&] { return flush.ended() && later.ended(); }));
  CHECK(flush.order > first.order);
  CHECK(flush.order > second.order);
  CHECK(flush.code == ErrorCode::ok);
}

TEST_CASE("deadline: a get ends at once, a put only when its attempts are fenced (R6)") {
  PeerWorld world(15);
  world.meet(0, 1);
  world.world.clog(world[0].port, world[1].port, seconds(1));
  const Instant start = world.world.now();
  Job& get = world[0].get(world[1], 0, 100, milliseconds(50));
  Job& put = world[0].put(world[1], 500'000, 100, milliseconds(50));
  REQUIRE(world.run([&] { return get.ended(); }));
  CHECK(get.code == ErrorCode::deadline_exceeded);
  CHECK(get.ended_at - start < milliseconds(55));
  CHECK_FALSE(put.ended());
  REQUIRE(world.run([&] { return put.ended(); }));
  // The clogged network may still carry the bytes until the target was asked. From here on nothing may change.
  CHECK(put.ended_at - start > milliseconds(250));
  const auto image = world[1].memory;
  world.world.run_for(seconds(5));
  CHECK(image == world[1].memory);
  const bool there = same(world[0], world[1], 500'000, 100);
  CHECK(put.code == (there ? ErrorCode::ok : ErrorCode::deadline_exceeded));
}

TEST_CASE("a put that was broken off before its deadline waits for the target as long as the lease, not less") {
  // The link is down already when the deadline comes, so that there is nothing left to fence from here.
  PeerWorld world(16);
  world.meet(0, 1);
  world.world.pause(world[1].port, milliseconds(900));
  Job& put = world[0].put(world[1], 500'000, 50'000, milliseconds(100));
  world.world.run_for(milliseconds(20));
  world.world.reset(world[0].port, world[1].port);
  REQUIRE(world.run([&] { return put.ended(); }));
  CHECK(put.code != ErrorCode::peer_lost);  // the peer was back well within its lease and could tell
  const auto image = world[1].memory;
  world.world.run_for(seconds(5));
  CHECK(image == world[1].memory);
}

TEST_CASE("what a withdrawn operation held is given to those who wait (no wake-up is lost)") {
  PeerWorld world(17);
  world[0].services->tx_depth = 1;
  world.meet(0, 1);
  world.world.clog(world[0].port, world[1].port, milliseconds(200));
  Job& first = world[0].get(world[1], 0, 100, milliseconds(20));
  world.world.run_for(milliseconds(1));
  Job& second = world[0].get(world[1], 1000, 100, seconds(20));
  REQUIRE(world.run([&] { return second.ended(); }));
  CHECK(first.code == ErrorCode::deadline_exceeded);
  CHECK(second.code == ErrorCode::ok);
}

TEST_CASE("ends that are told in a callback which ends other operations come once each") {
  // As a program does that deregisters its memory when the first operation fails.
  PeerWorld world(18);
  world.meet(0, 1);
  auto pin = world[0].regions->pin(world[0].memory.data(), 8);
  REQUIRE(pin.has_value());
  const std::uint32_t region = pin->id();
  pin->release();
  world.world.clog(world[0].port, world[1].port, seconds(10));
  for (int i = 0; i < 8; ++i) {
    Job& job = world[0].get(world[1], 0, 100);
    auto own = world[0].regions->pin(world[0].memory.data(), 8);
    REQUIRE(own.has_value());
    job.operation.pin = std::move(*own);
  }
  world[0].on_end = [&](Job& job) {
    job.operation.reset();  // the slot lives again, as the runtime does it
    world[0].to(1).end_operations_on(region);
  };
  SUBCASE("by the end of the session") { world.kill(1); }
  SUBCASE("by stop") { world[0].to(1).stop(world.world.now()); }
  SUBCASE("by the region") { world[0].to(1).end_operations_on(region); }
  REQUIRE(world.run([&] { return world[0].ends == 8; }));
  world.world.run_for(seconds(1));
  CHECK(world[0].ends == 8);
}

TEST_CASE("a link that breaks again and again: bytes arrive, each signal counts once (S5, P34)") {
  std::uint64_t breaks = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed, 2, seed % 2 == 0);
    world.meet(0, 1);
    runtime::FaultPlan plan;
    plan.reset_per_mille = 30;
    plan.one_sided_per_mille = 300;
    plan.one_sided_max = milliseconds(300);
    plan.long_delay_per_mille = 50;
    plan.long_delay_max = milliseconds(30);
    plan.abort_per_mille = 300;
    world.world.set_plan(plan);
    links::SimPlan weather;
    weather.break_per_mille = 30;
    weather.one_sided_per_mille = 300;
    weather.late_per_mille = 30;
    weather.late_max = milliseconds(200);
    world.fabric.set_plan(weather);

    const std::uint64_t before = world[1].word(0);
    std::vector<Job*> jobs;
    for (std::uint64_t i = 0; i < 40; ++i) {
      jobs.push_back(&world[0].put(world[1], 64 + i * 20'000, 20'000, seconds(60), 1));
      world.world.run_for(milliseconds(2));
    }
    const auto all_ended = [&] {
      return std::all_of(jobs.begin(), jobs.end(), [](const Job* job) { return job->ended(); });
    };
    REQUIRE(world.run(all_ended, seconds(300)));
    std::uint64_t successes = 0;
    std::uint64_t unknown = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      successes += jobs[i]->code == ErrorCode::ok ? 1 : 0;
      unknown += jobs[i]->code == ErrorCode::ok ? 0 : 1;
      if (jobs[i]->code == ErrorCode::ok) CHECK(same(world[0], world[1], 64 + i * 20'000, 20'000));
    }
    world.world.set_plan({});
    world.fabric.set_plan({});
    world.world.run_for(seconds(5));
    CHECK(successes > 20);
    CHECK(world[1].word(0) - before >= successes);
    CHECK(world[1].word(0) - before <= successes + unknown);
    breaks += world[0].counters.link_failures;
  }
  CHECK(breaks > 50);
}
