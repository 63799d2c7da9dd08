// SPDX-License-Identifier: Apache-2.0
//
// Limits: attempts in flight, control frames in flight; busy is back-pressure, and credit follows it.
#include <doctest/doctest.h>

#include "bytes.hpp"
#include "world.hpp"

using namespace conformance;

TEST_CASE_TEMPLATE("at most tx_depth attempts are under way; busy does nothing, and credit follows", Kind, Hccs, Pcie,
                   Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed();
  CAPTURE(seed);
  constexpr std::uint32_t k_depth = 4;
  auto world = World::make(Kind::kind, seed, {.tx = k_depth, .rx = 8});
  // Long enough that no link ends them inside the post.
  constexpr std::uint32_t k_bytes = 1U << 20U;
  constexpr std::size_t k_posts = 24;
  const Remote remote = world->share(k_posts * k_bytes);
  std::vector<std::vector<std::byte>> sources;
  for (std::size_t i = 0; i < k_posts; ++i) sources.push_back(noise(k_bytes, seed + i));
  End& a = world->a();
  std::size_t next = 0;
  int busy = 0;
  while (next < k_posts) {
    const int credits = a.credits;
    if (a.post(Verb::write, remote, {{sources[next].data(), next * k_bytes, k_bytes}}) != 0) {
      ++next;
    } else {
      ++busy;
      // Nothing happened to the slot of the post that was refused.
      CHECK(all({remote.memory + next * k_bytes, k_bytes}, std::byte{0}));
      world->until([&] { return a.credits != credits; });
    }
    CHECK(a.under_way() <= k_depth);
  }
  world->wait_all(a);
  CHECK(busy > 0);
  for (std::size_t i = 0; i < k_posts; ++i) CHECK(same({remote.memory + i * k_bytes, k_bytes}, sources[i]));
  for (const auto& [number, attempt] : a.attempts) CHECK(attempt.error.code == ErrorCode::ok);
  world->check_manners();
}

TEST_CASE_TEMPLATE("control frames come in order, whole, and never more than the peer has room for", Kind, Hccs, Pcie,
                   Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed() + 1;
  CAPTURE(seed);
  constexpr std::uint32_t k_room = 5;
  auto world = World::make(Kind::kind, seed, {.tx = 8, .rx = k_room});
  End& a = world->a();
  End& b = world->b();
  const int frames = rounds(300);
  std::vector<std::vector<std::byte>> bodies;
  for (int i = 0; i < frames; ++i)
    bodies.push_back(noise(static_cast<std::size_t>(i) * 7 % 3000 + 1, seed + static_cast<std::uint64_t>(i)));

  // Nothing of b moves: what is accepted now is what the credit allows.
  world->turn_b(false);
  std::size_t sent = 0;
  while (sent < bodies.size() && a.send(wire::FrameType::exchange, bodies[sent])) ++sent;
  CHECK(sent <= k_room);
  CHECK(sent > 0);
  world->turn_b(true);
  while (sent < bodies.size()) {
    const int credits = a.credits;
    if (a.send(sent % 2 == 0 ? wire::FrameType::exchange : wire::FrameType::barrier, bodies[sent])) {
      ++sent;
    } else {
      world->until([&] { return a.credits != credits; });
    }
  }
  world->until([&] { return b.controls.size() == bodies.size(); });
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    CHECK(same(b.controls[i].second, bodies[i]));
  }
  world->check_manners();
  CHECK(b.controls.size() == bodies.size());
}

TEST_CASE_TEMPLATE("a ping is answered by the link, and whoever speaks has been heard", Kind, Hccs, Pcie, Tcp, Roce,
                   Sim) {
  if (World::skips(Kind::kind)) return;
  auto world = World::make(Kind::kind, base_seed());
  End& a = world->a();
  const auto body = noise(8, 1);
  const Instant before = a.link->last_heard();
  REQUIRE(a.send(wire::FrameType::ping, body));
  world->until([&] { return !a.controls.empty(); });
  CHECK(a.controls[0].first == wire::FrameType::pong);
  CHECK(same(a.controls[0].second, body));
  CHECK(a.link->last_heard() > before);
  CHECK(a.link->last_heard() <= a.loop.port().now());
  CHECK(world->b().controls.empty());
  world->check_manners();
}
