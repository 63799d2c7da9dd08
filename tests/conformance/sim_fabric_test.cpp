// SPDX-License-Identifier: Apache-2.0
//
// The simulated fabric at its worst. It must be as bad as hardware (or the simulations above it prove nothing) and no
// worse than link.hpp allows.
#include <doctest/doctest.h>

#include "bytes.hpp"
#include "world.hpp"

using namespace conformance;

TEST_CASE("breaks, late pieces and one-sided views: what the target lists is there, what completed is listed") {
  constexpr std::size_t k_puts = 20;
  constexpr std::uint32_t k_bytes = 9000;
  std::uint64_t ghosts_landed = 0, ghosts_refused = 0, lost_answers = 0, one_sided = 0, unbroken = 0;
  for (int round = 0; round < rounds(300); ++round) {
    const std::uint64_t seed = base_seed() + static_cast<std::uint64_t>(round);
    CAPTURE(seed);
    auto world = World::make(LinkKind::sim, seed);
    End& a = world->a();
    End& b = world->b();
    Choices random(seed);
    links::SimPlan plan = links::SimPlan::draw(random);
    plan.break_per_mille = 100;
    world->fabric()->set_plan(plan);
    const Remote remote = world->share(k_puts * k_bytes + 8);
    std::vector<std::vector<std::byte>> sources;
    for (std::size_t i = 0; i < k_puts; ++i) sources.push_back(noise(k_bytes, seed * 100 + i));
    std::vector<std::uint64_t> numbers;
    std::uint64_t adds = 0;
    world->until([&] {
      if (numbers.size() < k_puts) {
        const std::size_t i = numbers.size();
        if (const auto number = a.post(Verb::write, remote, {{sources[i].data(), i * k_bytes, k_bytes}}); number != 0) {
          numbers.push_back(number);
        }
        if (a.post(Verb::signal_add, remote, {{nullptr, k_puts * k_bytes, 8}}, 1) != 0) ++adds;
      }
      return a.downs + b.downs > 0 || (numbers.size() == k_puts && a.under_way() == 0);
    });
    if (a.downs + b.downs == 0) ++unbroken;
    // The initiator may fence itself long before the target does, or after it.
    const bool initiator_first = random.chance(500);
    if (initiator_first) {
      if (b.downs == 1 && a.downs == 0) ++one_sided;
      a.close();
      for (auto& source : sources) std::fill(source.begin(), source.end(), k_canary);  // free: it must not be read now
      world->steps(random.below(2000), [] {});
    }
    b.close();
    const wire::ExecutedSet executed = b.link->executed();
    const std::vector<std::byte> memory(remote.memory, remote.memory + remote.size);
    world->settle();
    CHECK(same(memory, {remote.memory, remote.size}));
    CHECK(b.link->executed() == executed);
    if (!initiator_first) {
      world->until([&] { return a.downs == 1; });
      a.close();
    }
    world->until([&] { return a.drained() && b.drained(); });
    a.take_completions();

    std::uint64_t adds_executed = 0;
    for (const auto& [number, attempt] : a.attempts) {
      const bool completed = attempt.ends == 1;
      const bool listed = executed.contains(attempt.sequence);
      if (completed) CHECK(attempt.error.code == ErrorCode::ok);
      if (attempt.verb == Verb::signal_add) {
        adds_executed += completed || listed ? 1 : 0;
      } else if (completed || listed) {
        const std::size_t i = attempt.segments[0].offset / k_bytes;
        CHECK(same(std::span(memory).subspan(i * k_bytes, k_bytes), noise(k_bytes, seed * 100 + i)));
      }
      if (!completed && listed) ++lost_answers;
    }
    // Exactly once: neither an add without its mark, nor a mark without its add.
    CHECK(memory::load_word(memory::host_device(), remote.memory + k_puts * k_bytes) == adds_executed);
    ghosts_landed += world->fabric()->ghosts_landed();
    ghosts_refused += world->fabric()->ghosts_refused();
    world->check_manners();
  }
  MESSAGE("ghosts landed " << ghosts_landed << ", refused " << ghosts_refused << ", answers lost " << lost_answers
                           << ", seen by the target alone " << one_sided << ", unbroken " << unbroken);
  if (rounds(300) < 300) return;
  CHECK(ghosts_landed > 0);
  CHECK(ghosts_refused > 0);
  CHECK(lost_answers > 0);
  CHECK(one_sided > 0);
  CHECK(unbroken > 0);
}
