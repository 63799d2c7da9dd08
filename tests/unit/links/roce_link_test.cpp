// SPDX-License-Identifier: Apache-2.0
//
// The RDMA link from inside: what its posts take, wait for and give back.
#include <doctest/doctest.h>

#include <deque>

#include "links/roce/remote_keys.hpp"
#include "roce_liar.hpp"

using namespace hixl;
using namespace hixl::roce_test;
using links::Answer;
using links::Post;
using links::Segment;
using links::Verb;

namespace {

constexpr std::uint32_t k_bytes = 4096;  // of a segment: beyond what goes inline

struct Memory {
  explicit Memory(Side& side) : info(side.add(bytes)) {}
  std::vector<std::byte> bytes = std::vector<std::byte>(64U << 10U);
  memory::RegionInfo info;
};

Post post_to(const memory::RegionInfo& there, std::span<const Segment> segments, std::uint64_t cookie = 1) {
  return {.verb = Verb::write, .cookie = cookie, .region = there.key, .token = there.token, .segments = segments};
}

/// Does one job after the other.
struct OneThread final : runtime::Worker {
  struct Turn final : runtime::Job {
    Turn(OneThread& in, runtime::Job& what) : owner(in), job(what) {}
    void work() override { job.work(); }
    void done() override {
      const std::unique_ptr<Turn> self(this);
      owner.turns.pop_front();
      if (!owner.turns.empty()) owner.inner->run(*owner.turns.front());
      job.done();
    }
    OneThread& owner;
    runtime::Job& job;
  };
  explicit OneThread(std::unique_ptr<runtime::Worker> worker) : inner(std::move(worker)) {}
  void run(runtime::Job& job) override {
    turns.push_back(new Turn(*this, job));  // its own, until done()
    if (turns.size() == 1) inner->run(*turns.front());
  }
  std::deque<Turn*> turns;
  std::unique_ptr<runtime::Worker> inner;
};

/// A host where only one thing at a time can be waited for by each worker.
struct FewThreads final : links::roce::Verbs {
  explicit FewThreads(std::unique_ptr<links::roce::Verbs> verbs) : inner(std::move(verbs)) {}
  Result<std::vector<std::string>> device_names() override { return inner->device_names(); }
  Result<std::unique_ptr<links::roce::Device>> open(const std::string& name) override { return inner->open(name); }
  Result<std::unique_ptr<runtime::Worker>> make_worker(runtime::Loop& loop, std::uint32_t threads) override {
    auto worker = inner->make_worker(loop, threads);
    REQUIRE(worker);
    return std::unique_ptr<runtime::Worker>(std::make_unique<OneThread>(std::move(*worker)));
  }
  std::unique_ptr<links::roce::Verbs> inner;
};

}  // namespace

TEST_CASE("roce: memory that takes long to register holds up no connection") {
  Linked world(32, [](std::unique_ptr<links::roce::Verbs> verbs) -> std::shared_ptr<links::roce::Verbs> {
    return std::make_shared<FewThreads>(std::move(verbs));
  });
  Memory there(world.b);
  Memory here(world.a);
  world.a.learn(there.info, 1);
  links::RdmaPlan slow = test::calm();
  slow.work_max = std::chrono::hours(1);
  const Segment small{here.bytes.data(), 0, 8};
  REQUIRE(world.run(post_to(there.info, {&small, 1})) == ErrorCode::ok);  // the peer's key is here
  world.fabric.set_plan(slow);
  const Segment segment{here.bytes.data(), 0, k_bytes};
  REQUIRE(world.a.link->post(post_to(there.info, {&segment, 1})) == Answer::posted);
  world.fabric.set_plan(test::calm());

  Record a, b;
  Meeting meeting(world.a, world.b);
  const auto at_a = world.a.make(std::move(meeting.dialled), true, 32, a);
  const auto at_b = world.b.make(std::move(meeting.accepted), false, 32, b);
  world.world.run_for(std::chrono::seconds(1));
  CHECK(a.up == 1);
  CHECK(b.up == 1);
  CHECK(world.a.record.completions.size() == 1);  // the long one goes on
}

TEST_CASE("roce: a post that waits for a registration has taken nothing when the link closes") {
  Linked world;
  Memory there(world.b);
  Memory first(world.a);
  Memory second(world.a);
  world.a.learn(there.info, 1);
  const std::array<Segment, 2> segments{Segment{first.bytes.data(), 0, k_bytes},
                                        Segment{second.bytes.data(), k_bytes, k_bytes}};
  REQUIRE(world.run(post_to(there.info, std::span(segments).first(1))) == ErrorCode::ok);
  // The first one's memory is registered, the second one's begins to be.
  REQUIRE(world.a.link->post(post_to(there.info, segments, 2)) == Answer::posted);
  world.a.link->close();
  CHECK(world.a.link->sequence_of(2) == 0);
  CHECK(world.a.link->drained());
  for (const Memory* one : {&first, &second}) {
    REQUIRE(*world.a.regions->close(one->info.key));
    CHECK(world.until([&] { return world.a.factory->revoke(one->info.key); }));
  }
}

TEST_CASE("roce: a link that is closed knows nothing of a card that has gone since") {
  Linked world;
  Memory there(world.b);
  Memory here(world.a);
  world.a.learn(there.info, 1);
  const Segment segment{here.bytes.data(), 0, k_bytes};
  REQUIRE(world.run(post_to(there.info, {&segment, 1})) == ErrorCode::ok);
  world.a.link->close();
  world.fabric.remove(0, 0, std::chrono::hours(1));
  REQUIRE(world.until([&] { return world.fabric.holdings(world.a.port).devices == 0; }));
  REQUIRE(*world.a.regions->close(here.info.key));
  CHECK(world.a.link->revoke(here.info.key));
  CHECK(world.a.factory->revoke(here.info.key));
}

TEST_CASE("roce: writes that waited keep to the numbers that a fence can tell apart") {
  constexpr std::size_t k_writes = 900;
  constexpr LinkSeq k_window = 1024;  // of an executed set
  Attack attack(false, k_writes + 1);
  attack.set_up();
  Liar& liar = *attack.liar;
  links::Link& link = *attack.victim.link;
  const auto ends = [&] { return attack.victim.record.completions.size(); };
  memory::RegionInfo there;
  there.key = {1, 1};
  there.data = liar.end.memory.data() + links::roce::k_page_bytes;
  there.size = liar.end.memory.size() - links::roce::k_page_bytes;
  there.rights = Rights::all;
  attack.victim.learn(there, 1);

  const Segment word{nullptr, 0, 8};
  Post signal = post_to(there, {&word, 1}, k_writes);
  signal.verb = Verb::signal_set;
  REQUIRE(link.post(signal) == Answer::posted);
  std::uint64_t value = 7;
  const Segment segment{reinterpret_cast<std::byte*>(&value), 8, 8};
  for (std::size_t i = 0; i < k_writes; ++i) REQUIRE(link.post(post_to(there, {&segment, 1}, i)) == Answer::posted);
  REQUIRE(attack.until([&] { return liar.saw(wire::FrameType::signal) && liar.saw(wire::FrameType::roce_ask); }));
  const LinkSeq oldest = link.sequence_of(k_writes);

  // All of them have the key now, and not all of them a number: the peer has not yet dealt with the word.
  liar.say(wire::FrameType::roce_key, wire::RoceKey{.key = there.key,
                                                    .remote_key = liar.end.region->remote_key(),
                                                    .address = liar.end.address(links::roce::k_page_bytes)});
  REQUIRE(attack.until([&] { return ends() > 0; }));
  attack.world.run_for(std::chrono::seconds(1));
  CHECK(liar.progress_word() - oldest < k_window);
  CHECK(ends() < k_writes);
  liar.say(wire::FrameType::ack, wire::Ack{oldest});
  REQUIRE(attack.until([&] { return ends() == k_writes + 1; }));
  for (const links::Completion& one : attack.victim.record.completions) REQUIRE(one.error.code == ErrorCode::ok);
}

TEST_CASE("roce: of keys that the peer refused, those of regions that are no more are forgotten") {
  using links::roce::RemoteKeyEntry;
  links::roce::RemoteKeys keys;
  keys.add({1, 1}).state = RemoteKeyEntry::State::refused;
  RemoteKeyEntry& other = keys.add({2, 1});
  other.state = RemoteKeyEntry::State::refused;
  RemoteKeyEntry& dropped = keys.add({3, 1});
  dropped.state = RemoteKeyEntry::State::dropped;
  dropped.uses = 1;
  for (std::uint32_t generation = 2; generation < 5; ++generation) {
    keys.add({1, generation}).state = RemoteKeyEntry::State::refused;
    CHECK(keys.find({1, generation - 1}) == nullptr);
  }
  RemoteKeyEntry& next = keys.add({3, 2});
  CHECK(keys.find({1, 4}) != nullptr);
  CHECK(keys.find({2, 1}) == &other);
  CHECK(keys.find({3, 1}) == &dropped);  // requests under way use it
  CHECK(keys.find({3, 2}) == &next);
  keys.erase({3, 1});
  CHECK(keys.find({3, 1}) == nullptr);
  CHECK(keys.find({3, 2}) == &next);
}
