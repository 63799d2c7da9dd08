// SPDX-License-Identifier: Apache-2.0
//
// Links and roles: made by both, in any order, ended and made again, changed while KV moves.
#include <atomic>
#include <thread>

#include "kv_world.hpp"

using namespace hixl;
using namespace hixl::kv;
using namespace hixl::kv::test;

namespace {

ErrorCode push_code(Couple& couple) {
  return end_of(couple.world[0].push(couple.from, couple.target_seen, two_blocks(k_here)));
}

}  // namespace

TEST_CASE("F126 everybody links with everybody at once, in orders that would wait for each other") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    KvWorld world(4, links);
    std::vector<std::thread> threads;
    std::vector<std::vector<Result<void>>> results(4);
    for (Rank rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] {
        std::vector<Rank> others;
        for (Rank step = 1; step < 4; ++step) others.push_back((rank + step) % 4);
        results[rank] = world[rank].link(others, k_patience);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Rank rank = 0; rank < 4; ++rank) {
      REQUIRE(results[rank].size() == 3);
      for (const auto& result : results[rank]) require_ok(result);
      for (Rank other = 0; other < 4; ++other) {
        CHECK(world[rank].link_state(other) == (rank == other ? LinkState::none : LinkState::linked));
      }
    }
    // Again changes nothing.
    const Rank one = 1;
    require_ok(world[0].link({&one, 1}, std::chrono::milliseconds(0)).front());
  }
}

TEST_CASE("a rank that does not link: the deadline says so for that rank alone") {
  KvWorld world(3);
  std::thread other([&] {
    const Rank zero = 0;
    require_ok(world[1].link({&zero, 1}, k_patience).front());
  });
  const Rank both[] = {2, 1, 9};
  const auto results = world[0].link(both, std::chrono::milliseconds(1'500));
  other.join();
  REQUIRE(results.size() == 3);
  CHECK(code_of(results[0]) == ErrorCode::deadline_exceeded);
  CHECK(results[0].error().detail.rank == 2);
  require_ok(results[1]);
  CHECK(code_of(results[2]) == ErrorCode::rank_out_of_range);
  CHECK(world[0].link_state(2) == LinkState::none);
  CHECK(code_of(world[0].find(2, {})) == ErrorCode::not_linked);
}

TEST_CASE("unlink: nothing more either way, what is open ends first; linked again, all goes on") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Couple couple(links);
    const auto open = couple.world[0].push(couple.from, couple.target_seen, two_blocks(k_here), {.layered = true});
    require_ok(open);
    require_ok(open->ready(0));
    std::atomic<bool> unlinked{false};
    std::thread unlinking([&] {
      require_ok(couple.world[0].unlink(1, k_patience));
      unlinked = true;
    });
    while (couple.world[1].link_state(0) != LinkState::peer_unlinked) std::this_thread::yield();
    CHECK(push_code(couple) == ErrorCode::not_linked);
    CHECK(end_of(couple.world[1].pull(couple.to, couple.source_seen, two_blocks(k_here))) == ErrorCode::not_linked);
    CHECK_FALSE(unlinked.load());
    for (const std::uint32_t layer : {1U, 2U, 3U}) require_ok(open->ready(layer));
    require_ok(open->wait());
    unlinking.join();
    CHECK(couple.same_block(3, 3));
    CHECK(couple.world[0].link_state(1) == LinkState::none);
    CHECK(code_of(couple.world[0].unlink(1)) == ErrorCode::not_linked);
    couple.world.link(0, 1);
    CHECK(push_code(couple) == ErrorCode::ok);
    CHECK(end_of(couple.world[1].pull(couple.to, couple.source_seen, two_blocks(k_here))) == ErrorCode::ok);
  }
}

TEST_CASE("unlink with a transfer that does not end: cancelled at the deadline") {
  Couple couple;
  const auto open = couple.world[0].push(couple.from, couple.target_seen, two_blocks(k_here), {.layered = true});
  require_ok(open);
  require_ok(couple.world[0].unlink(1, std::chrono::milliseconds(50)));
  CHECK(code_of(open->wait(k_patience)) == ErrorCode::cancelled);
}

TEST_CASE("linked again before the other one has left: all goes on") {
  Couple couple;
  DataDist& sender = couple.world[0];
  const auto open = couple.world[1].pull(couple.to, couple.source_seen, two_blocks(k_here), {.layered = true});
  require_ok(open);
  require_ok(open->ready(0));
  while (open->progress().layers_done == 0) std::this_thread::yield();
  CHECK(code_of(sender.unlink(1, std::chrono::milliseconds(30))) == ErrorCode::deadline_exceeded);
  TestCache late(couple.world.runtime(0), paged());
  CacheDesc desc = paged();
  desc.key.name = 7;
  require_ok(sender.register_cache(desc, late.places()));
  couple.world.link(0, 1);
  for (const std::uint32_t layer : {1U, 2U, 3U}) require_ok(open->ready(layer));
  require_ok(open->wait());
  CHECK(end_of(couple.world[1].pull(couple.to, couple.source_seen, two_blocks(k_here))) == ErrorCode::ok);
  const auto seen = couple.world[1].find(0, desc.key);
  require_ok(seen);
  CHECK(end_of(couple.world[1].pull(couple.to, *seen, two_blocks(k_here))) == ErrorCode::ok);
  require_ok(sender.unlink(1, k_patience));
}

TEST_CASE(
    "a cache that is registered while its rank unlinks is shut to the one that is left, also when that finds it") {
  Couple couple;
  DataDist& sender = couple.world[0];
  const auto open = couple.world[1].pull(couple.to, couple.source_seen, two_blocks(k_here), {.layered = true});
  require_ok(open);
  require_ok(open->ready(0));
  while (open->progress().layers_done == 0) std::this_thread::yield();
  // Leaving, for as long as that pull is open.
  CHECK(code_of(sender.unlink(1, std::chrono::milliseconds(30))) == ErrorCode::deadline_exceeded);
  TestCache late(couple.world.runtime(0), paged());
  CacheDesc desc = paged();
  desc.key.name = 7;
  require_ok(sender.register_cache(desc, late.places()));
  const auto seen = couple.world[1].find(0, desc.key);
  require_ok(seen);
  const Memory before = couple.target.store();
  CHECK(end_of(couple.world[1].pull(couple.to, *seen, two_blocks())) == ErrorCode::not_linked);
  CHECK(couple.target.store() == before);
  for (const std::uint32_t layer : {1U, 2U, 3U}) require_ok(open->ready(layer));
  require_ok(open->wait());
}

TEST_CASE("F126 roles: judged at once, on both sides; what is under way ends first") {
  Couple couple;
  DataDist& sender = couple.world[0];
  DataDist& receiver = couple.world[1];
  const auto open = sender.push(couple.from, couple.target_seen, two_blocks(k_here), {.layered = true});
  require_ok(open);
  require_ok(open->ready(0));
  while (open->progress().layers_done == 0) std::this_thread::yield();
  // The receiver stops being one while a push is inside.
  CHECK(code_of(receiver.switch_role(Role::prefill, std::chrono::milliseconds(30))) == ErrorCode::deadline_exceeded);
  CHECK(receiver.role() == Role::prefill);
  CHECK(push_code(couple) == ErrorCode::wrong_role);
  for (const std::uint32_t layer : {1U, 2U, 3U}) require_ok(open->ready(layer));
  require_ok(open->wait());
  require_ok(receiver.switch_role(Role::prefill, k_patience));
  CHECK(end_of(receiver.pull(couple.to, couple.source_seen, two_blocks(k_here))) == ErrorCode::wrong_role);
  // The other way round works now.
  CHECK(end_of(receiver.push(couple.to, couple.source_seen, two_blocks(k_here))) == ErrorCode::ok);
  require_ok(receiver.switch_role(Role::decode, k_patience));
  CHECK(push_code(couple) == ErrorCode::ok);
  CHECK(end_of(receiver.push(couple.to, couple.source_seen, two_blocks(k_here))) == ErrorCode::wrong_role);
  CHECK(end_of(receiver.pull(couple.to, couple.source_seen, two_blocks(k_here))) == ErrorCode::ok);
  require_ok(sender.switch_role(Role::decode, k_patience));
  CHECK(push_code(couple) == ErrorCode::wrong_role);
  CHECK(end_of(receiver.pull(couple.to, couple.source_seen, two_blocks(k_here))) == ErrorCode::wrong_role);
  CHECK(code_of(sender.switch_role(static_cast<Role>(0))) == ErrorCode::invalid_argument);
  CHECK(code_of(sender.switch_role(static_cast<Role>(4))) == ErrorCode::invalid_argument);
}

TEST_CASE("F126 role switches under traffic: each transfer is whole or refused, and nobody hangs") {
  Couple couple({}, paged(16, 8));
  std::atomic<bool> over{false};
  std::atomic<int> good[2]{};
  std::atomic<int> refused[2]{};
  std::vector<std::thread> traffic;
  for (int thread = 0; thread < 2; ++thread) {
    traffic.emplace_back([&, thread] {
      while (!over.load()) {
        const auto moved = thread == 0 ? couple.world[0].push(couple.from, couple.target_seen, two_blocks(k_here))
                                       : couple.world[1].pull(couple.to, couple.source_seen, two_blocks(k_here));
        const ErrorCode code = end_of(moved);
        if (code == ErrorCode::ok) good[thread] += 1;
        if (code == ErrorCode::wrong_role) refused[thread] += 1;
        if (code != ErrorCode::ok && code != ErrorCode::wrong_role) FAIL_CHECK(name(code));
      }
    });
  }
  // The pushes go into rank 1, and the pulls are its own: a prefill refuses both, and a decode neither.
  const Role roles[] = {Role::prefill, Role::both, Role::prefill, Role::decode};
  for (int round = 0; round < rounds(200); ++round) {
    CHECK(couple.world[1].switch_role(roles[round % 4], k_patience));
    if (round % 5 != 0) continue;  // most of them come in the middle of something
    auto& counted = roles[round % 4] == Role::prefill ? refused : good;
    for (std::atomic<int>& count : counted) {
      // The next one may have been judged before the switch.
      for (const int before = count.load(); count.load() < before + 2;) std::this_thread::yield();
    }
  }
  over = true;
  for (std::thread& thread : traffic) thread.join();
  CHECK(couple.same_block(3, 3));
}

TEST_CASE("P6 P9 a rank that comes again: its old caches are stale, the link is made anew, KV moves") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Couple couple(links);
    CHECK(push_code(couple) == ErrorCode::ok);
    for (int life = 0; life < 3; ++life) {
      CAPTURE(life);
      couple.world.slot(1).reset();
      couple.world.world().slot(1).reset();
      const RemoteCache old = couple.target_seen;
      const auto until = std::chrono::steady_clock::now() + k_patience;
      while (couple.world[0].link_state(1) != LinkState::peer_lost && std::chrono::steady_clock::now() < until) {
        std::this_thread::yield();
      }
      CHECK(couple.world[0].link_state(1) == LinkState::peer_lost);
      const ErrorCode dead = end_of(couple.world[0].push(couple.from, old, two_blocks(k_here)));
      CHECK((dead == ErrorCode::stale || dead == ErrorCode::peer_lost || dead == ErrorCode::not_exchanged));
      auto again = Runtime::create(options_for(1, 2, couple.world.world().store_url(), links));
      require_ok(again);
      couple.world.world().slot(1) = std::move(*again);
      couple.world.open(1);
      couple.world.link(0, 1);
      TestCache target(couple.world.runtime(1), paged());
      const auto to = couple.world[1].register_cache(paged(), target.places());
      require_ok(to);
      CHECK(code_of(couple.world[0].push(couple.from, old, two_blocks(k_here))) == ErrorCode::stale);
      const auto seen = couple.world[0].find(1, paged().key);
      require_ok(seen);
      couple.target_seen = *seen;
      CHECK(push_code(couple) == ErrorCode::ok);
      CHECK(std::memcmp(couple.source.tensor(0) + 3 * 4096, target.tensor(0) + 3 * 4096, 4096) == 0);
    }
  }
}
