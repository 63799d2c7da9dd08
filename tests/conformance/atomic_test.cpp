// SPDX-License-Identifier: Apache-2.0
//
// Atomics on every link: the value before, one effect each, refusals without effect, and the truth after a break.
#include <doctest/doctest.h>

#include <set>

#include "bytes.hpp"
#include "world.hpp"

using namespace conformance;

namespace {

constexpr std::uint64_t k_word = 512;

/// Posts atomics as a peer actor does: numbers that rise, all below the oldest one under way acknowledged.
class Asker {
 public:
  Asker(World& world, const Remote& remote) : world_(world), remote_(remote) {}
  /// The number of the attempt.
  std::uint64_t post(Verb verb, std::uint64_t value, std::uint64_t expected = 0, std::uint64_t offset = k_word) {
    End& end = world_.a();
    for (;;) {
      const int credits = end.credits;
      const AtomicSeq acked = open_.empty() ? last_ : *open_.begin() - 1;
      const links::AtomicTerms terms{.number = last_ + 1, .acked_upto = acked, .expected = expected};
      if (const auto attempt = end.post_atomic(verb, remote_, offset, value, terms); attempt != 0) {
        open_.insert(++last_);
        numbers_[attempt] = last_;
        return attempt;
      }
      world_.until([&] { return end.credits != credits; });
    }
  }
  Attempt wait(std::uint64_t attempt) {
    world_.until([&] { return world_.a().ended(attempt); });
    open_.erase(numbers_.at(attempt));
    return world_.a().attempts.at(attempt);
  }
  std::uint64_t run(Verb verb, std::uint64_t value, std::uint64_t expected = 0) {
    const Attempt done = wait(post(verb, value, expected));
    REQUIRE(done.error.code == ErrorCode::ok);
    return done.value;
  }
  ErrorCode refusal(const Remote& remote, std::uint64_t offset) {
    remote_ = remote;
    return wait(post(Verb::atomic_add, 1, 0, offset)).error.code;
  }

 private:
  World& world_;
  Remote remote_;
  AtomicSeq last_ = 0;
  std::set<AtomicSeq> open_;
  std::map<std::uint64_t, AtomicSeq> numbers_;
};

}  // namespace

TEST_CASE_TEMPLATE("F20 F21 F22: atomics change their word only, once, and give the value before", Kind, Hccs, Tcp,
                   Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed();
  CAPTURE(seed);
  auto world = World::make(Kind::kind, seed);
  const Remote remote = world->share(4096);
  Asker asker(*world, remote);
  memory::Device& device = memory::host_device();
  std::byte* const word = remote.memory + k_word;
  CHECK(asker.run(Verb::atomic_add, 3) == 0);
  CHECK(asker.run(Verb::atomic_add, ~0ULL - 1) == 3);
  CHECK(memory::load_word(device, word) == 1);
  CHECK(asker.run(Verb::atomic_compare_swap, 50, 2) == 1);
  CHECK(asker.run(Verb::atomic_compare_swap, 50, 1) == 1);
  CHECK(asker.run(Verb::atomic_swap, 60) == 50);
  CHECK(memory::load_word(device, word) == 60);
  // The owner's CPU and the peer's atomics mix.
  CHECK(memory::fetch_add_word(device, word, 1) == 60);
  CHECK(asker.run(Verb::atomic_swap, 0) == 61);

  std::vector<std::uint64_t> posted;
  std::set<std::uint64_t> seen;
  const auto count = static_cast<std::uint64_t>(rounds(500));
  for (std::uint64_t i = 0; i < count; ++i) {
    posted.push_back(asker.post(Verb::atomic_add, 1));
    if (i % 7 == 0) seen.insert(memory::fetch_add_word(device, word, 1));
    if (posted.size() < 6) continue;
    seen.insert(asker.wait(posted.front()).value);
    posted.erase(posted.begin());
  }
  for (const std::uint64_t attempt : posted) seen.insert(asker.wait(attempt).value);
  const std::uint64_t total = count + (count + 6) / 7;
  CHECK(memory::load_word(device, word) == total);
  CHECK(seen.size() == total);
  CHECK(*seen.rbegin() == total - 1);
  CHECK(all({remote.memory, k_word}, std::byte{0}));
  CHECK(all({remote.memory + k_word + 8, 4096 - k_word - 8}, std::byte{0}));
  world->check_manners();
}

TEST_CASE_TEMPLATE("an atomic that the region does not grant is refused with its reason", Kind, Hccs, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  auto world = World::make(Kind::kind, base_seed() + 1);
  const Remote remote = world->share(4096);
  Asker asker(*world, remote);
  CHECK(name(asker.refusal(remote, 4)) == "UNALIGNED");
  if (!world->caps().needs_window) {
    const Remote plain = world->share(4096, Rights::read | Rights::write);
    CHECK(name(asker.refusal(remote, 4096)) == "OUT_OF_RANGE");
    CHECK(name(asker.refusal(plain, 0)) == "ACCESS_DENIED");
    Remote forged = remote;
    forged.token.high ^= 1;
    CHECK(name(asker.refusal(forged, 0)) == "ACCESS_DENIED");
    CHECK(all({plain.memory, plain.size}, std::byte{0}));
  }
  CHECK(all({remote.memory, remote.size}, std::byte{0}));
  world->check_manners();
}

TEST_CASE("a kind that executes no words refuses atomics, each kind of them, and changes nothing") {
  auto world = World::make(LinkKind::pcie, base_seed() + 2);
  REQUIRE_FALSE(world->caps().words);
  const Remote remote = world->share(4096);
  for (const Verb verb : {Verb::atomic_add, Verb::atomic_swap, Verb::atomic_compare_swap}) {
    Asker asker(*world, remote);
    CHECK(name(asker.wait(asker.post(verb, 1)).error.code) == "UNSUPPORTED");
  }
  CHECK(all({remote.memory, remote.size}, std::byte{0}));
  CHECK(world->a().downs == 0);
  world->check_manners();
}

TEST_CASE_TEMPLATE("H2: after a break the target knows what it executed, and executes nothing of it again", Kind, Hccs,
                   Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  for (int round = 0; round < rounds(30); ++round) {
    const std::uint64_t seed = base_seed() * 100 + static_cast<std::uint64_t>(round);
    CAPTURE(seed);
    auto world = World::make(Kind::kind, seed);
    Random random(seed);
    const Remote remote = world->share(4096);
    std::map<std::uint64_t, AtomicSeq> posted;
    AtomicSeq number = 0;
    for (std::uint64_t i = 0; i < 6; ++i) {
      const links::AtomicTerms terms{.number = ++number, .acked_upto = 0};
      if (const auto attempt = world->a().post_atomic(Verb::atomic_add, remote, k_word, 1, terms); attempt != 0) {
        posted[attempt] = number;
      }
    }
    world->steps(world->some_steps(random), [] {});
    world->close_both();
    std::uint64_t executed = 0;
    for (const auto& [attempt, its_number] : posted) {
      const Attempt& was = world->a().attempts.at(attempt);
      const bool answered = was.ends == 1 && was.error.code == ErrorCode::ok;
      const bool at_target = was.sequence != 0 && world->b().link->executed().contains(was.sequence);
      executed += answered || at_target ? 1 : 0;
      if (world->caps().executed_by_initiator) continue;
      // Over whatever link it is asked next: executed means answered from memory, else it is executed now.
      const std::uint64_t before = memory::load_word(memory::host_device(), remote.memory + k_word);
      const wire::AtomicBody again{
          .region = remote.key, .token = remote.token, .offset = k_word, .number = its_number, .value = 1, .ask = 1};
      const auto answer = world->b().atomics.execute(again, *world->b().regions, *world->b().signals);
      CHECK(answer.has_value() == (answered || at_target));
      if (answered) CHECK(*answer == was.value);
      CHECK(memory::load_word(memory::host_device(), remote.memory + k_word) == before);
    }
    CHECK(memory::load_word(memory::host_device(), remote.memory + k_word) == executed);
  }
}
