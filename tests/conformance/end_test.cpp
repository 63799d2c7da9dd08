// SPDX-License-Identifier: Apache-2.0
//
// Ends: of attempts, of sides, of peers. What a closed side reports agrees with its memory, and stays.
#include <doctest/doctest.h>

#include "bytes.hpp"
#include "world.hpp"

using namespace conformance;

namespace {

constexpr std::uint32_t k_bytes = 200U << 10U;

/// Puts of known bytes, each to its own place, as many as the link takes.
class Puts {
 public:
  Puts(World& world, std::uint64_t seed, std::size_t count) : world_(world), remote_(world.share(count * k_bytes)) {
    for (std::size_t i = 0; i < count; ++i) sources_.push_back(noise(k_bytes, seed + i));
  }
  void post_more() {
    while (numbers_.size() < sources_.size()) {
      const std::size_t i = numbers_.size();
      const std::uint64_t number = world_.a().post(Verb::write, remote_, {{sources_[i].data(), i * k_bytes, k_bytes}});
      if (number == 0) return;
      numbers_.push_back(number);
    }
  }
  [[nodiscard]] std::size_t posted() const { return numbers_.size(); }
  [[nodiscard]] const Attempt& attempt(std::size_t i) const { return world_.a().attempts.at(numbers_[i]); }
  [[nodiscard]] std::span<std::byte> there(std::size_t i) const { return {remote_.memory + i * k_bytes, k_bytes}; }
  [[nodiscard]] bool arrived(std::size_t i) const { return same(there(i), sources_[i]); }
  [[nodiscard]] const Remote& remote() const { return remote_; }

 private:
  World& world_;
  Remote remote_;
  std::vector<std::vector<std::byte>> sources_;
  std::vector<std::uint64_t> numbers_;
};

}  // namespace

TEST_CASE_TEMPLATE("the target closes in the middle: what it executed is final, right, and nothing comes later", Kind,
                   Hccs, Pcie, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  std::size_t done = 0, not_done = 0;
  for (int round = 0; round < rounds(20); ++round) {
    const std::uint64_t seed = base_seed() + static_cast<std::uint64_t>(round) * 1000;
    CAPTURE(seed);
    auto world = World::make(Kind::kind, seed);
    End& a = world->a();
    End& b = world->b();
    Puts puts(*world, seed, 30);
    Random random(seed);
    world->steps(world->some_steps(random), [&] { puts.post_more(); });
    b.close();
    const wire::ExecutedSet executed = b.link->executed();
    world->until([&] { return b.drained(); });
    a.take_completions();
    const bool by_initiator = world->caps().executed_by_initiator;
    for (std::size_t i = 0; i < puts.posted(); ++i) {
      const bool completed = puts.attempt(i).ends == 1 && puts.attempt(i).error.code == ErrorCode::ok;
      const bool listed = !by_initiator && puts.attempt(i).ends == 0 &&
                          executed.contains(a.link->sequence_of(static_cast<std::uint64_t>(i) + 1));
      if (completed || listed) {
        CHECK(puts.arrived(i));
        ++done;
      } else {
        ++not_done;
      }
    }
    // The target reuses its memory now: the initiator still knows nothing.
    std::fill_n(puts.remote().memory, puts.remote().size, k_canary);
    puts.post_more();
    world->settle();
    CHECK(all({puts.remote().memory, puts.remote().size}, k_canary));
    CHECK(b.link->executed() == executed);

    // The initiator learns of it, once, and fences its own half; completions never contradict the target.
    world->until([&] { return a.downs == 1; });
    a.close();
    world->until([&] {
      a.take_completions();
      return a.drained();
    });
    a.take_completions();
    CHECK((a.under_way() == 0 || !by_initiator));  // its own copies have each had their end by then
    for (std::size_t i = 0; i < puts.posted(); ++i) {
      const Attempt& attempt = puts.attempt(i);
      CHECK(attempt.ends <= 1);
      if (attempt.ends == 0 && executed.contains(attempt.sequence)) CHECK_FALSE(by_initiator);
      if (attempt.ends == 1 && attempt.error.code == ErrorCode::ok && attempt.sequence != 0) {
        CHECK(executed.contains(attempt.sequence));
      }
    }
    CHECK(all({puts.remote().memory, puts.remote().size}, k_canary));
    world->check_manners();
  }
  MESSAGE("executed " << done << ", not executed " << not_done);
}

TEST_CASE_TEMPLATE(
    "the initiator closes in the middle: its sources are free, and the target's set agrees with its memory", Kind, Hccs,
    Pcie, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  std::size_t done = 0, not_done = 0;
  for (int round = 0; round < rounds(20); ++round) {
    const std::uint64_t seed = base_seed() + 7 + static_cast<std::uint64_t>(round) * 1000;
    CAPTURE(seed);
    auto world = World::make(Kind::kind, seed);
    End& a = world->a();
    End& b = world->b();
    Puts puts(*world, seed, 30);
    Random random(seed);
    world->steps(world->some_steps(random), [&] { puts.post_more(); });
    a.close();
    world->until([&] {
      a.take_completions();
      return a.drained();
    });
    a.take_completions();
    // Its own copies have each had their end by then; the sources are free.
    CHECK((a.under_way() == 0 || !world->caps().executed_by_initiator));
    world->until([&] { return b.downs == 1; });
    world->settle();  // whatever the network still holds lands, or not: this side is open
    b.close();
    world->until([&] { return b.drained(); });
    for (std::size_t i = 0; i < puts.posted(); ++i) {
      const Attempt& attempt = puts.attempt(i);
      const bool completed = attempt.ends == 1 && attempt.error.code == ErrorCode::ok;
      const bool listed = attempt.ends == 0 && b.link->executed().contains(attempt.sequence);
      if (completed || listed) CHECK(puts.arrived(i));
      (completed || listed ? done : not_done) += 1;
    }
    std::fill_n(puts.remote().memory, puts.remote().size, k_canary);
    world->check_manners();
    CHECK(all({puts.remote().memory, puts.remote().size}, k_canary));
  }
  MESSAGE("executed " << done << ", not executed " << not_done);
}

TEST_CASE_TEMPLATE("reads end with the close of their own side: local memory stays", Kind, Hccs, Pcie, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  for (int round = 0; round < rounds(10); ++round) {
    const std::uint64_t seed = base_seed() + 11 + static_cast<std::uint64_t>(round) * 1000;
    CAPTURE(seed);
    auto world = World::make(Kind::kind, seed);
    End& a = world->a();
    const Remote remote = world->share(8 * k_bytes);
    fill({remote.memory, remote.size}, seed);
    std::vector<std::byte> local(8 * k_bytes);
    for (std::uint64_t i = 0; i < 8; ++i)
      a.post(Verb::read, remote, {{local.data() + i * k_bytes, i * k_bytes, k_bytes}});
    Random random(seed);
    world->steps(world->some_steps(random), [] {});
    a.close();
    world->until([&] {
      a.take_completions();
      return a.drained();
    });
    a.take_completions();
    for (const auto& [number, attempt] : a.attempts) {
      const std::size_t at = attempt.segments[0].offset;
      if (attempt.ends == 1 && attempt.error.code == ErrorCode::ok) {
        CHECK(same(std::span(local).subspan(at, k_bytes), {remote.memory + at, k_bytes}));
      }
    }
    std::fill(local.begin(), local.end(), k_canary);
    world->check_manners();
    CHECK(all(local, k_canary));
  }
}

TEST_CASE_TEMPLATE("a read that was taken back touches local memory no more and has no completion", Kind, Hccs, Pcie,
                   Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  int taken_back = 0, kept = 0;
  for (int round = 0; round < rounds(20); ++round) {
    const std::uint64_t seed = base_seed() + 13 + static_cast<std::uint64_t>(round) * 1000;
    CAPTURE(seed);
    auto world = World::make(Kind::kind, seed);
    End& a = world->a();
    const Remote remote = world->share(8 * k_bytes);
    fill({remote.memory, remote.size}, seed);
    std::vector<std::byte> local(8 * k_bytes);
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t i = 0; i < 6; ++i) {
      numbers.push_back(world->post(a, Verb::read, remote, {{local.data() + i * k_bytes, i * k_bytes, k_bytes}}));
    }
    Random random(seed);
    world->steps(world->some_steps(random), [] {});
    for (const std::uint64_t number : numbers) {
      const std::span<std::byte> place = std::span(local).subspan(a.attempts.at(number).segments[0].offset, k_bytes);
      if (a.attempts.at(number).ends == 0 && a.abandon(number)) {
        ++taken_back;
        std::fill(place.begin(), place.end(), k_canary);
      } else {
        ++kept;
      }
    }
    world->wait_all(a);  // those that could not be taken back complete
    world->settle();
    for (const std::uint64_t number : numbers) {
      const std::size_t at = a.attempts.at(number).segments[0].offset;
      const auto place = std::span(local).subspan(at, k_bytes);
      if (a.attempts.at(number).ends < 0) {
        CHECK(all(place, k_canary));
      } else {
        CHECK(a.code(number) == ErrorCode::ok);
        CHECK(same(place, {remote.memory + at, k_bytes}));
      }
    }
    // The link goes on, and the place of what was taken back is free.
    CHECK(a.downs == 0);
    std::vector<std::byte> again(k_bytes);
    CHECK(world->run(a, Verb::read, remote, {{again.data(), 0, k_bytes}}) == ErrorCode::ok);
    CHECK(same(again, {remote.memory, k_bytes}));
    world->check_manners();
  }
  MESSAGE("taken back " << taken_back << ", kept " << kept);
}

TEST_CASE_TEMPLATE("a peer that vanishes is reported once, and nothing is lost without a trace", Kind, Hccs, Pcie, Tcp,
                   Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed() + 17;
  CAPTURE(seed);
  auto world = World::make(Kind::kind, seed);
  End& a = world->a();
  Puts puts(*world, seed, 20);
  world->steps(20, [&] { puts.post_more(); });
  world->b().drop_link();  // without close(): as a process that is gone
  world->until([&] { return a.downs == 1; });
  CHECK(a.down_error.code != ErrorCode::ok);
  CHECK(a.down_error.detail.rank == world->b().rank);
  world->settle();
  CHECK(a.downs == 1);
  a.close();
  world->until([&] {
    a.take_completions();
    return a.drained();
  });
  for (std::size_t i = 0; i < puts.posted(); ++i) CHECK(puts.attempt(i).ends <= 1);
  std::fill_n(puts.remote().memory, puts.remote().size, k_canary);
  world->settle();
  CHECK(all({puts.remote().memory, puts.remote().size}, k_canary));
  CHECK_FALSE(a.send(wire::FrameType::exchange, noise(4, 1)));
  world->check_manners();
}

TEST_CASE_TEMPLATE("closing twice, idle, and both at once is harmless", Kind, Hccs, Pcie, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  auto world = World::make(Kind::kind, base_seed());
  const Remote remote = world->share(4096);
  auto source = noise(4096, 3);
  CHECK(world->run(world->a(), Verb::write, remote, {{source.data(), 0, 4096}}) == ErrorCode::ok);
  world->close_both();
  world->close_both();
  CHECK(world->a().downs == 0);
  CHECK(world->b().downs == 0);
  CHECK(same({remote.memory, remote.size}, source));
  world->check_manners();
}
