// SPDX-License-Identifier: Apache-2.0
//
// How many connections are made at once, in which order, and who waits for whom.
#include "peer/dial_slots.hpp"

#include <algorithm>
#include <vector>

#include "peer_world.hpp"
#include "stranger_door.hpp"

using namespace hixl;
using namespace hixl::peer;
using namespace hixl::peer::test;

namespace {

/// Somebody who wants `wanted` slots and keeps those that it gets.
struct Dialler {
  Dialler(DialSlots& slots, int number, int wanted, std::vector<int>& order)
      : slots_(slots), number_(number), wanted_(wanted), order_(order) {
    want();
  }
  void want() {
    while (wanted_ > 0) {
      DialSlots::Slot slot = slots_.take(turn_, haste);
      if (!slot) return;
      wanted_ -= 1;
      order_.push_back(number_);
      held.push_back(std::move(slot));
    }
  }
  DialSlots::Haste haste = DialSlots::Haste::none;
  std::vector<DialSlots::Slot> held;

 private:
  DialSlots& slots_;
  const int number_;
  int wanted_;
  std::vector<int>& order_;
  DialTurn<Dialler> turn_{*this, &Dialler::want};
};

struct Line {
  runtime::VirtualWorld world{1};
  runtime::EventPort& port = world.make_port("line");
  runtime::Loop loop{port, 1, 16};
  DialSlots slots{loop};
  std::vector<int> order;
  Line() { world.add(loop, port); }
  ~Line() { world.remove(port); }
  void turn() {
    port.wake();
    world.run_for(milliseconds(1));
  }
};

constexpr auto k_ordinary = static_cast<std::size_t>(k_dials_max - k_dials_in_haste);

std::size_t under_way(Life& life) {
  std::size_t count = 0;
  for (const auto& peer : life.directory->peers()) {
    for (const LinkInfo& link : life.links(peer->rank())) count += link.state == "CONNECTING" ? 1 : 0;
  }
  return count;
}

void prewarm(Life& life, Rank to, Duration time, int& done) {
  life.to(to).prewarm({.deadline = life.world.world.now() + time,
                       .done = [](void* count, const Result<void>&) { *static_cast<int*>(count) += 1; },
                       .context = &done});
  life.wake();
}

}  // namespace

TEST_CASE("dial slots: first come, first served, and each in turn") {
  Line line;
  {
    Dialler greedy(line.slots, 1, 20, line.order);
    CHECK(line.order == std::vector<int>(k_ordinary, 1));
    Dialler other(line.slots, 2, 2, line.order);
    Dialler third(line.slots, 3, 1, line.order);
    line.turn();
    CHECK(line.order.size() == k_ordinary);
    line.order.clear();
    for (int i = 0; i < 5; ++i) {
      greedy.held.erase(greedy.held.begin());
      line.turn();
    }
    CHECK(line.order == std::vector{1, 2, 3, 1, 2});
    CHECK(line.slots.taken() == k_ordinary);
  }
  CHECK(line.slots.taken() == 0);
}

TEST_CASE("dial slots: one whose lease runs waits for nobody else, and the others are not forgotten") {
  Line line;
  Dialler others(line.slots, 1, 20, line.order);
  Dialler hasty(line.slots, 2, 1, line.order);
  CHECK(line.order.size() == k_ordinary);
  hasty.haste = DialSlots::Haste::lease_runs;
  hasty.want();  // one that stands in line already
  CHECK(line.order.back() == 2);
  {
    Dialler leaves(line.slots, 3, 1, line.order);  // from the line, by its end
  }
  std::vector<std::unique_ptr<Dialler>> crowd;
  for (int i = 10; i < 14; ++i) {
    crowd.push_back(std::make_unique<Dialler>(line.slots, i, 1, line.order));
    crowd.back()->haste = DialSlots::Haste::lease_runs;
    crowd.back()->want();
  }
  CHECK(line.slots.taken() == k_dials_max);
  CHECK(line.order.back() == 10);
  others.held.clear();
  line.turn();
  CHECK(std::count_if(line.order.begin(), line.order.end(), [](int n) { return n >= 10; }) == 4);
  CHECK(line.order.back() == 1);
  CHECK(line.slots.taken() == k_ordinary);
}

TEST_CASE("L4 forty peers that are wanted at once: a few connections under way at any time, and all come about") {
  for (const std::uint32_t tcp_links : {1U, 3U}) {
    constexpr Rank k_peers = 40;
    PeerWorld world(51, k_peers + 1, false, 0, {.tcp_links = tcp_links});
    int done = 0;
    for (Rank peer = 1; peer <= k_peers; ++peer) prewarm(world[0], peer, seconds(30), done);
    std::size_t most = 0;
    const auto all_done = [&] {
      most = std::max(most, under_way(world[0]));
      return done == k_peers;
    };
    CHECK(world.run(all_done, seconds(30)));
    CHECK(most <= 8);
    CHECK(most >= k_ordinary);
    for (Rank peer = 1; peer <= k_peers; ++peer) CHECK(world[0].links_up(peer) == tcp_links);
    CHECK(world[0].dials() <= k_peers * tcp_links);  // the others may be faster with a further link
  }
}

TEST_CASE("L4 peers that never answer hold others up for no longer than one dial may take") {
  constexpr Rank k_live = 10;
  constexpr Rank k_silent = 2 * k_ordinary;
  PeerWorld world(52, k_live + 2, false, k_silent);
  StrangerDoor door(world, "door");
  const Duration limit = world[0].services->timing.connect;
  int silent_done = 0;
  const auto silent_ranks = [&](auto&& use) {
    for (Rank rank = k_live + 2; rank < k_live + 2 + k_silent; ++rank) use(rank);
  };
  int before = 0;
  prewarm(world[0], 1, seconds(30), before);
  REQUIRE(world.run([&] { return before == 1; }));
  silent_ranks([&](Rank rank) { prewarm(world[0], rank, seconds(300), silent_done); });
  world.world.run_for(milliseconds(1));
  silent_ranks([&](Rank rank) { world[0].watchers.at(rank)->on_address(door.endpoints(rank, rank)); });
  world[0].wake();
  REQUIRE(world.run([&] { return under_way(world[0]) == k_ordinary; }, seconds(1)));
  // The silent ones are first in line, twice as many as there are slots.
  int done = 0;
  for (Rank rank = 2; rank <= k_live; ++rank) prewarm(world[0], rank, seconds(60), done);
  std::size_t most = 0;
  const auto watch = [&](auto&& until) {
    return [&most, &world, until] {
      most = std::max(most, under_way(world[0]));
      return until();
    };
  };
  CHECK(world.run(watch([&] { return done == k_live - 1; }), 3 * limit));
  // While the silent ones are tried again and again, a link that broke is back long before its lease ends …
  for (int i = 0; i < 20; ++i) {
    world.world.run_for(seconds(7));
    world.world.reset(world[0].port, world[1].port);
    REQUIRE(world.run([&] { return world[0].links_up(1) == 0; }, seconds(1)));
    CHECK(world.run(watch([&] { return world[0].links_up(1) == 1; }), milliseconds(700)));
  }
  CHECK(world[0].downs.empty());
  // … and one that is new has its turn when each of them has had one.
  int late = 0;
  prewarm(world[0], k_live + 1, seconds(60), late);
  CHECK(world.run(watch([&] { return late == 1; }), 3 * limit));
  CHECK(world[0].links_up(k_live + 1) == 1);
  CHECK(most <= 8);
  CHECK(silent_done == 0);
}
