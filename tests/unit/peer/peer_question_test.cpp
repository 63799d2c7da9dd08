// SPDX-License-Identifier: Apache-2.0
//
// Questions for what a rank offers: each is answered, and nobody has to keep what nobody waits for.
#include "peer_world.hpp"
#include "stranger.hpp"

using namespace hixl;
using namespace hixl::peer::test;

namespace {

/// A peer that asks by hand, and acknowledges when it is told to.
struct Asker {
  explicit Asker(PeerWorld& in) : world(in) {
    peer.say(world[0], Stranger::hello_to(world[0], 2, 99));
    REQUIRE(peer.welcome.has_value());
  }
  void ask(std::uint32_t tag) {
    peer.send(wire::FrameType::exchange,
              wire::Exchange{.number = ++asked, .note = wire::ExchangeNote::question, .group = tag, .regions = {}});
    pass();
  }
  void acknowledge(std::uint64_t number) {
    peer.send(wire::FrameType::exchange_ack, wire::ExchangeAck{.number = number});
    pass();
  }
  void pass() {
    world.world.run_for(milliseconds(1));
    peer.acknowledge();
  }
  /// Tags of the answers that came, each once.
  [[nodiscard]] std::vector<std::uint64_t> answers() const {
    std::vector<std::uint64_t> tags;
    std::uint64_t newest = 0;
    for (std::size_t i = 0; i < peer.frames.size(); ++i) {
      wire::Exchange message;
      if (peer.frames[i].type != wire::FrameType::exchange || !decode_body(peer.bodies[i], message)) continue;
      if (message.note != wire::ExchangeNote::answer || message.number <= newest) continue;
      newest = message.number;
      tags.push_back(message.group);
    }
    return tags;
  }
  PeerWorld& world;
  Stranger peer{world, "asker"};
  std::uint64_t asked = 0;
};

}  // namespace

TEST_CASE("all who asked for a tag are told, and who asks later is answered as well") {
  PeerWorld world(61);
  world.meet(0, 1);
  std::vector<ExchangeJob*> jobs;
  for (int i = 0; i < 3; ++i) jobs.push_back(&world[0].ask(world[1], 5));
  world.world.run_for(milliseconds(100));
  for (int i = 0; i < 3; ++i) jobs.push_back(&world[0].ask(world[1], 5));
  auto& other = world[0].ask(world[1], 6);
  world.world.run_for(milliseconds(100));
  for (const ExchangeJob* job : jobs) CHECK(job->ends == 0);
  world[1].offer(5);
  REQUIRE(world.run([&] { return std::all_of(jobs.begin(), jobs.end(), [](auto* job) { return job->ends > 0; }); },
                    seconds(5)));
  for (const ExchangeJob* job : jobs) {
    CHECK(job->ends == 1);
    REQUIRE(job->answer.result.has_value());
    REQUIRE(job->answer.regions.size() == 1);
    CHECK(job->answer.regions[0].tag == 5);
  }
  CHECK(other.ends == 0);
  auto& later = world[0].ask(world[1], 5);
  REQUIRE(world.run([&] { return later.ends > 0; }, seconds(5)));
  CHECK(later.answer.regions.size() == 1);
}

TEST_CASE("questions and answers that cross on a network which loses connections all meet") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed ", seed);
    PeerWorld world(seed);
    world.lease(seconds(60));
    runtime::FaultPlan plan;
    plan.reset_per_mille = 40;
    plan.delay_max = milliseconds(3);
    world.world.set_plan(plan);
    std::vector<ExchangeJob*> jobs;
    for (int i = 0; i < 20; ++i) {
      jobs.push_back(&world[0].ask(world[1], 5, seconds(300)));
      world.world.run_for(milliseconds(3));
      if (i == 10) world[1].offer(5);
    }
    REQUIRE(world.run([&] { return std::all_of(jobs.begin(), jobs.end(), [](auto* job) { return job->ends > 0; }); },
                      seconds(310)));
    for (const ExchangeJob* job : jobs) CHECK(job->answer.result.has_value());
  }
}

TEST_CASE("an answer that comes before its question is acknowledged may be an older one's: it is asked again") {
  PeerWorld world(62, 2, false, 1);
  Stranger liar(world, "liar");
  liar.say(world[0], Stranger::hello_to(world[0], 2, 99));
  REQUIRE(liar.welcome.has_value());
  int ends = 0;
  std::size_t regions = 0;
  struct Context {
    int& ends;
    std::size_t& regions;
  } context{ends, regions};
  world[0].to(2).exchange({}, {.deadline = world.world.now() + seconds(60),
                               .done =
                                   [](void* to, PeerAddresses&& answer) {
                                     auto& here = *static_cast<Context*>(to);
                                     here.ends += 1;
                                     here.regions = answer.regions.size();
                                   },
                               .context = &context,
                               .stream = {.note = wire::ExchangeNote::question, .group = 5}});
  world[0].wake();
  world.world.run_for(milliseconds(10));
  const auto questions = [&] {
    std::uint64_t newest = 0;
    for (std::size_t i = 0; i < liar.frames.size(); ++i) {
      wire::Exchange message;
      if (liar.frames[i].type == wire::FrameType::exchange && decode_body(liar.bodies[i], message)) {
        newest = std::max(newest, message.number);
      }
    }
    return newest;
  };
  const auto answer = [&](std::uint64_t number, std::vector<wire::RegionDescriptor> with) {
    const auto total = static_cast<std::uint32_t>(with.size());
    liar.send(wire::FrameType::exchange, wire::Exchange{.number = number,
                                                        .total = total,
                                                        .note = wire::ExchangeNote::answer,
                                                        .group = 5,
                                                        .regions = std::move(with)});
    world.world.run_for(milliseconds(10));
  };
  CHECK(questions() == 1);
  answer(1, {});
  CHECK(ends == 0);
  CHECK(questions() == 1);
  liar.send(wire::FrameType::exchange_ack, wire::ExchangeAck{.number = 1});
  world.world.run_for(milliseconds(10));
  CHECK(ends == 0);
  CHECK(questions() == 2);
  liar.send(wire::FrameType::exchange_ack, wire::ExchangeAck{.number = 2});
  answer(2, {world[1].region});
  CHECK(ends == 1);
  CHECK(regions == 1);
}

TEST_CASE("a peer that asks and does not acknowledge is owed a bounded number of answers, and gets the others then") {
  PeerWorld world(63, 2, false, 1);
  world[0].offer(5);
  Asker asker(world);
  constexpr std::size_t k_questions = peer::k_exchanges_open_max + 40;
  for (std::uint32_t i = 0; i < k_questions; ++i) asker.ask(i % 2 == 0 ? 5 : k_any_tag);
  const std::size_t owed = asker.answers().size();
  CHECK(owed == peer::k_exchanges_open_max);
  // Of the rest one answer for each of the two tags is enough.
  asker.acknowledge(owed);
  CHECK(asker.answers().size() == owed + 2);
}

TEST_CASE("questions of those who gave up give way: the oldest is answered with what there is") {
  PeerWorld world(64, 2, false, 1);
  Asker asker(world);
  constexpr std::uint32_t k_tags = peer::k_exchanges_open_max;
  for (std::uint32_t tag = 0; tag < k_tags; ++tag) asker.ask(100 + tag);
  asker.ask(100);  // once more: now it is the youngest
  CHECK(asker.answers().empty());
  asker.ask(5);
  asker.ask(6);
  CHECK(asker.answers() == std::vector<std::uint64_t>{101, 102});
  asker.acknowledge(2);
  world[0].offer(5);
  asker.pass();
  CHECK(asker.answers() == std::vector<std::uint64_t>{101, 102, 5});
}
