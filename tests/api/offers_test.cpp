// SPDX-License-Identifier: Apache-2.0
//
// Offers: a rank learns another's regions while that one's program does nothing.
#include <doctest/doctest.h>

#include <thread>

#include <hixl/offers.hpp>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

Region offered(Runtime& runtime, std::uint32_t tag, std::size_t size = 4096) {
  auto region = runtime.allocate(size, {.tag = tag});
  require_ok(region);
  require_ok(Offers::add(runtime, {&*region, 1}));
  return *region;
}

}  // namespace

TEST_CASE("who asks learns everything that is offered, and may put there") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(2, links);
    const Region one = offered(world[1], 7);
    offered(world[1], 8);
    auto hidden = world[1].allocate(4096, {.tag = 9});
    require_ok(hidden);
    const auto told = Offers::ask(world[0], 1, 7, k_patience);
    require_ok(told);
    REQUIRE(told->size() == 2);
    const std::uint64_t value = 0x1234;
    require_ok(world[0].put_sync(&value, told->front().at(8), sizeof value));
    CHECK(*reinterpret_cast<const std::uint64_t*>(one.data + 8) == value);
  }
}

TEST_CASE("a question waits until its tag is offered, and no longer than its deadline") {
  World world(2);
  CHECK(code_of(Offers::ask(world[0], 1, 5, 50ms)) == ErrorCode::deadline_exceeded);
  Result<std::vector<RemoteRegion>> told;
  std::thread asking([&] { told = Offers::ask(world[0], 1, 5, k_patience); });
  offered(world[1], 4);
  offered(world[1], 5);
  asking.join();
  require_ok(told);
  CHECK(std::ranges::any_of(*told, [](const RemoteRegion& r) { return r.tag == 5; }));
}

TEST_CASE("any tag is answered at once, also with nothing; what was deregistered is offered no more") {
  World world(2);
  auto none = Offers::ask(world[0], 1, k_any_tag, k_patience);
  require_ok(none);
  CHECK(none->empty());
  const Region region = offered(world[1], 3);
  CHECK(Offers::ask(world[0], 1, k_any_tag, k_patience)->size() == 1);
  require_ok(world[1].deregister(region));
  CHECK(Offers::ask(world[0], 1, k_any_tag, k_patience)->empty());
  CHECK(code_of(Offers::add(world[1], {&region, 1})) == ErrorCode::stale);
}

TEST_CASE("questions and exchanges of programs do not answer each other") {
  World world(2);
  const Region mine = offered(world[0], 1);
  const Region theirs = offered(world[1], 2);
  Answer<std::vector<PeerAddresses>> answer;
  const Rank to = 1;
  require_ok(world[0].exchange_async({&mine, 1}, {&to, 1}, k_patience, store_answers, &answer));
  for (int i = 0; i < 3; ++i) require_ok(Offers::ask(world[0], 1, 2, k_patience));
  for (int i = 0; i < 3; ++i) require_ok(Offers::ask(world[1], 0, 1, k_patience));
  CHECK(answer.events.count() == 0);  // the other program has not exchanged
  const Rank back = 0;
  const auto got = world[1].exchange({&theirs, 1}, {&back, 1}, k_patience);
  require_ok(got[0].result);
  REQUIRE(answer.wait());
  require_ok(answer.value[0].result);
}

TEST_CASE("a rank that asks itself, one that is not there, one out of range") {
  World world(2);
  CHECK(code_of(Offers::ask(world[0], 0, 1, 1s)) == ErrorCode::not_exchanged);
  const Region own = offered(world[0], 1);
  require_ok(Offers::ask(world[0], 0, 1, 1s));
  require_ok(world[0].deregister(own));
  CHECK(code_of(Offers::ask(world[0], 0, 1, 1s)) == ErrorCode::not_exchanged);
  CHECK(code_of(Offers::ask(world[0], 2, 1, 1s)) == ErrorCode::rank_out_of_range);
  world.slot(1).reset();
  CHECK_FALSE(Offers::ask(world[0], 1, 1, 100ms).has_value());
}

TEST_CASE("an asker that gave up leaves nothing that a later one could take for its answer") {
  World world(2);
  for (int i = 0; i < 100; ++i) CHECK_FALSE(Offers::ask(world[0], 1, 5, 1ms).has_value());
  offered(world[1], 5);
  for (int i = 0; i < 100; ++i) require_ok(Offers::ask(world[0], 1, 5, k_patience));
}
