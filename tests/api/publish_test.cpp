// SPDX-License-Identifier: Apache-2.0
//
// Regions that are told to a rank whose program does nothing for it, and what links() says of a peer's life.
#include <atomic>
#include <optional>
#include <thread>

#include <hixl/inspect_text.hpp>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

struct Published {
  std::atomic<int> calls{0};
  std::vector<PeerAddresses> answers;
};
void publish(Runtime& runtime, const Region& region, std::vector<Rank> with, Published& out,
             Timeout timeout = std::chrono::seconds(20)) {
  require_ok(runtime.publish_async(
      std::span(&region, 1), with, timeout,
      [](void* context, std::vector<PeerAddresses>&& answers) {
        auto& here = *static_cast<Published*>(context);
        here.answers = std::move(answers);
        here.calls += 1;
        here.calls.notify_all();
      },
      &out));
  out.calls.wait(0);
}
std::optional<RemoteAddress> seen(Runtime& runtime, Rank rank, std::uint32_t tag) {
  const auto dump = runtime.dump_regions();
  require_ok(dump);
  for (const PeerRegion& region : dump->peers) {
    if (region.rank != rank || region.tag != tag || region.retired) continue;
    return RemoteAddress{.rank = rank, .address = region.base, .region = region.key, .incarnation = region.incarnation};
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("a published region can be used by a rank that has never called anything, on every link") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(3, links);
    const auto region = world[0].allocate(4096, {.tag = 77});
    require_ok(region);
    Published published;
    publish(world[0], *region, {1, 2, 0}, published);
    REQUIRE(published.answers.size() == 3);
    for (const PeerAddresses& answer : published.answers) require_ok(answer.result);
    CHECK(published.answers[0].regions.empty());
    for (const Rank user : {1U, 2U}) {
      const auto at = seen(world[user], 0, 77);
      REQUIRE(at);
      const std::uint64_t value = 0x1122'3344'5566'7788U + user;
      require_ok(world[user].put_sync(&value, *at, sizeof value));
      std::uint64_t there = 0;
      std::memcpy(&there, region->data, sizeof there);
      CHECK(there == value);
    }
    CHECK(published.calls.load() == 1);
  }
}

TEST_CASE("publish takes no part in an exchange: neither side's exchange is answered by it") {
  World world(2);
  const auto told = world[0].allocate(4096, {.tag = 1});
  const auto swapped = world[0].allocate(4096, {.tag = 2});
  const auto theirs = world[1].allocate(4096, {.tag = 3});
  for (const auto* region : {&told, &swapped, &theirs}) require_ok(*region);
  for (int round = 0; round < 50; ++round) {  // more than a peer keeps of exchanges that nobody has called for
    Published published;
    publish(world[0], *told, {1}, published);
    require_ok(published.answers[0].result);
  }
  std::vector<PeerAddresses> there;
  std::thread other([&] {
    const Rank zero = 0;
    there = world[1].exchange(std::span(&*theirs, 1), {&zero, 1});
  });
  const Rank one = 1;
  const auto here = world[0].exchange(std::span(&*swapped, 1), {&one, 1});
  other.join();
  require_ok(here[0].result);
  require_ok(there[0].result);
  REQUIRE(here[0].regions.size() == 1);
  CHECK(here[0].regions[0].tag == 3);
  REQUIRE(there[0].regions.size() == 1);
  CHECK(there[0].regions[0].tag == 2);
}

TEST_CASE("publish: a rank that never comes, one that there is not, a stale region, a stopped runtime") {
  // The other rank of this world is never started.
  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  auto alone = Runtime::create(options_for(0, 2, (*store)->url()));
  require_ok(alone);
  const auto region = (*alone)->allocate(4096);
  require_ok(region);
  Published late;
  publish(**alone, *region, {1, 5}, late, std::chrono::milliseconds(50));
  CHECK(code_of(late.answers[0].result) == ErrorCode::deadline_exceeded);
  CHECK(code_of(late.answers[1].result) == ErrorCode::rank_out_of_range);
  require_ok((*alone)->deregister(*region));
  Published stale;
  publish(**alone, *region, {1}, stale);
  CHECK(code_of(stale.answers[0].result) == ErrorCode::stale);
  const Rank one = 1;
  CHECK(code_of((*alone)->publish_async({}, {&one, 1}, std::chrono::seconds(1), nullptr, nullptr)) ==
        ErrorCode::invalid_argument);
  require_ok((*alone)->stop());
  CHECK(code_of((*alone)->publish_async(
            {}, {&one, 1}, std::chrono::seconds(1), [](void*, auto&&) {}, nullptr)) == ErrorCode::stopped);
}

TEST_CASE("a rank that comes in a new life is told again, and links() names the life that is known") {
  World world(2);
  const auto region = world[0].allocate(4096, {.tag = 9});
  require_ok(region);
  Published published;
  publish(world[0], *region, {1}, published);
  require_ok(published.answers[0].result);
  const auto lives = [&](std::uint64_t incarnation) {
    for (const LinkInfo& link : world[0].links()) {
      if (link.rank == 1 && link.state != "OFF" && link.incarnation != incarnation) return false;
    }
    return true;
  };
  const std::uint64_t first = world[1].incarnation();
  CHECK(lives(first));
  CHECK(to_json(world[0].links()).find("\"incarnation\"") != std::string::npos);
  world.slot(1).reset();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!lives(0) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  CHECK(lives(0));
  auto again = Runtime::create(options_for(1, 2, world.store_url()));
  require_ok(again);
  world.slot(1) = std::move(*again);
  Published second;
  publish(world[0], *region, {1}, second);
  require_ok(second.answers[0].result);
  CHECK(lives(world[1].incarnation()));
  CHECK(world[1].incarnation() != first);
  CHECK(seen(world[1], 0, 9));
}
