// SPDX-License-Identifier: Apache-2.0
//
// What a region does not grant is refused before a byte moves; what is revoked or closed is not touched any more.
#include <doctest/doctest.h>

#include <string>

#include "bytes.hpp"
#include "world.hpp"

using namespace conformance;

namespace {

constexpr std::size_t k_page = 4096;

struct Refusal {
  std::string what;
  ErrorCode code;
  Verb verb;
  Remote remote;
  std::vector<Segment> segments;
};

}  // namespace

TEST_CASE_TEMPLATE("an access that the region does not grant ends with its reason and moves nothing", Kind, Hccs, Pcie,
                   Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed();
  CAPTURE(seed);
  auto world = World::make(Kind::kind, seed);
  if (world->caps().needs_window) {
    MESSAGE(
        "skipped: a mapped window has no gate of its own for ranges, tokens and rights; RemoteTable::resolve is it");
    return;
  }
  const Remote open = world->share(4 * k_page);
  const Remote readable = world->share(k_page, Rights::read);
  const Remote writable = world->share(k_page, Rights::write);
  for (const Remote* remote : {&open, &readable, &writable}) {
    std::fill_n(remote->memory, remote->size, k_canary);
  }
  Remote forged = open;
  forged.token.low ^= 1;
  Remote other_life = open;
  other_life.key.generation += 1;
  Remote no_such = open;
  no_such.key.id += 40;
  Guarded local(2 * k_page);
  std::byte* bytes = local.data();
  const std::uint64_t size = open.size;
  const std::vector<Refusal> refusals{
      {"another generation, write", ErrorCode::stale, Verb::write, other_life, {{bytes, 0, 8}}},
      {"another generation, read", ErrorCode::stale, Verb::read, other_life, {{bytes, 0, 8}}},
      {"another generation, signal", ErrorCode::stale, Verb::signal_add, other_life, {{nullptr, 0, 8}}},
      {"an id that is not in use", ErrorCode::stale, Verb::write, no_such, {{bytes, 0, 8}}},
      {"a forged token, write", ErrorCode::access_denied, Verb::write, forged, {{bytes, 0, 8}}},
      {"a forged token, read", ErrorCode::access_denied, Verb::read, forged, {{bytes, 0, 8}}},
      {"a forged token, signal", ErrorCode::access_denied, Verb::signal_set, forged, {{nullptr, 0, 8}}},
      {"one byte beyond the end, write", ErrorCode::out_of_range, Verb::write, open, {{bytes, size - 7, 8}}},
      {"one byte beyond the end, read", ErrorCode::out_of_range, Verb::read, open, {{bytes, size - 7, 8}}},
      {"at the end", ErrorCode::out_of_range, Verb::write, open, {{bytes, size, 1}}},
      {"a word that ends outside", ErrorCode::out_of_range, Verb::signal_set, open, {{nullptr, size, 8}}},
      {"writing where only reading is allowed", ErrorCode::access_denied, Verb::write, readable, {{bytes, 0, 8}}},
      {"a signal where only reading is allowed",
       ErrorCode::access_denied,
       Verb::signal_set,
       readable,
       {{nullptr, 0, 8}}},
      {"reading where only writing is allowed", ErrorCode::access_denied, Verb::read, writable, {{bytes, 0, 8}}},
      {"a good segment before a bad one, write",
       ErrorCode::out_of_range,
       Verb::write,
       open,
       {{bytes, 0, 1024}, {bytes + 1024, size - 1, 1024}}},
      {"a good segment before a bad one, read",
       ErrorCode::out_of_range,
       Verb::read,
       open,
       {{bytes, 0, 1024}, {bytes + 1024, size - 1, 1024}}},
  };
  for (const Refusal& refusal : refusals) {
    CAPTURE(refusal.what);
    const bool word = refusal.verb == Verb::signal_set || refusal.verb == Verb::signal_add;
    const ErrorCode expected = word && !world->caps().words ? ErrorCode::unsupported : refusal.code;
    fill(local.span(), seed);
    const std::vector<std::byte> before(local.span().begin(), local.span().end());
    const std::uint64_t number = world->post(world->a(), refusal.verb, refusal.remote, refusal.segments, 77);
    const LinkSeq sequence = world->a().link->sequence_of(number);
    world->until([&] { return world->a().ended(number); });
    CHECK_FALSE(world->b().link->executed().contains(sequence));
    CHECK(name(world->a().code(number)) == name(expected));
    CHECK(world->a().attempts.at(number).error.detail.rank == world->b().rank);
    CHECK(same(local.span(), before));
    CHECK(local.intact());
    for (const Remote* remote : {&open, &readable, &writable}) {
      CHECK(all({remote->memory, remote->size}, k_canary));
    }
  }
  // The link is none the worse for it.
  CHECK(world->run(world->a(), Verb::write, open, {{bytes, size - 8, 8}}) == ErrorCode::ok);
  CHECK(world->run(world->a(), Verb::write, writable, {{bytes, 0, 8}}) == ErrorCode::ok);
  CHECK(world->run(world->a(), Verb::read, readable, {{bytes, 0, 8}}) == ErrorCode::ok);
  CHECK(world->a().link->traffic().bytes_out == 16);
  CHECK(world->a().downs == 0);
  world->check_manners();
}

TEST_CASE_TEMPLATE("an offset that wraps around reaches nothing: refused, or the link breaks over such a peer", Kind,
                   Hccs, Pcie, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed() + 5;
  CAPTURE(seed);
  for (const std::uint64_t offset : {~0ULL, ~0ULL - 3, 0ULL - k_page}) {
    for (const Verb verb : {Verb::write, Verb::read}) {
      CAPTURE(offset);
      auto world = World::make(Kind::kind, seed);
      if (world->caps().needs_window) {
        MESSAGE("skipped: a mapped window has no gate of its own for ranges; RemoteTable::resolve is it");
        return;
      }
      End& a = world->a();
      const Remote remote = world->share(4 * k_page);
      std::fill_n(remote.memory, remote.size, k_canary);
      Guarded local(2 * k_page);
      fill(local.span(), seed);
      const std::vector<std::byte> before(local.span().begin(), local.span().end());
      const std::uint64_t number = world->post(a, verb, remote, {{local.data(), offset, k_page + 8}});
      world->until([&] { return a.ended(number) || a.downs == 1; });
      if (a.ended(number)) CHECK(name(a.code(number)) == "OUT_OF_RANGE");
      if (a.downs == 1) CHECK(world->b().downs == 1);
      CHECK(same(local.span(), before));
      CHECK(local.intact());
      CHECK(all({remote.memory, remote.size}, k_canary));
      world->check_manners();
    }
  }
}

namespace {

/// Uses a region of b from a in every way, as hard as the link allows.
class Attack {
 public:
  Attack(World& world, std::uint64_t seed)
      : world_(world),
        random_(seed),
        source_(noise(k_bytes, seed)),
        sink_(k_bytes),
        victim_(world.share(k_bytes + k_words * 8)) {}

  void strike() {
    while (world_.a().downs == 0) {
      std::uint64_t posted = 0;
      switch (random_.below(3)) {
        case 0:
          posted = world_.a().post(Verb::read, victim_, {{sink_.data(), 0, k_bytes}});
          break;
        case 1:
          if (!world_.caps().words) continue;
          posted = world_.a().post(Verb::signal_add, victim_, {{nullptr, k_bytes + random_.below(k_words) * 8, 8}}, 1);
          break;
        default:
          posted = world_.a().post(Verb::write, victim_, {{source_.data(), 0, k_bytes}});
          break;
      }
      if (posted == 0) return;
    }
  }
  /// After revoke() was true: the owner uses the memory for something else.
  void reuse() { std::fill_n(victim_.memory, victim_.size, k_canary); }
  void check() {
    CHECK(all({victim_.memory, victim_.size}, k_canary));
    const std::vector<std::byte> leak(k_canary_bytes, k_canary);  // the region held nothing like it before
    CHECK(std::search(sink_.begin(), sink_.end(), leak.begin(), leak.end()) == sink_.end());
  }
  [[nodiscard]] const Remote& victim() const { return victim_; }
  [[nodiscard]] std::byte* bytes() { return sink_.data(); }

 private:
  static constexpr std::uint32_t k_bytes = 1U << 20U;  // long enough to be caught in the middle
  static constexpr std::uint64_t k_words = 512;        // for signals, behind the data: the two may not race
  World& world_;
  Random random_;
  std::vector<std::byte> source_, sink_;
  Remote victim_;
};

}  // namespace

TEST_CASE_TEMPLATE(
    "after revoke has become true no byte of the region changes or is read, and what comes later is STALE", Kind, Hccs,
    Pcie, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  int broken = 0, kept = 0;
  for (int round = 0; round < rounds(25); ++round) {
    const std::uint64_t seed = base_seed() + static_cast<std::uint64_t>(round) * 1000;
    CAPTURE(seed);
    auto world = World::make(Kind::kind, seed);
    Random random(seed);
    End& a = world->a();
    End& b = world->b();
    std::vector<std::unique_ptr<Attack>> attacks;
    for (int i = 0; i < 4 && a.downs == 0; ++i) {
      Attack& attack = *attacks.emplace_back(std::make_unique<Attack>(*world, seed + static_cast<std::uint64_t>(i)));
      world->steps(world->some_steps(random), [&] { attack.strike(); });
      const auto closed = b.regions->close(attack.victim().key);
      REQUIRE(closed);
      REQUIRE(*closed);
      while (!b.revoke(attack.victim())) world->steps(1, [&] { attack.strike(); });
      attack.reuse();
      world->steps(world->some_steps(random), [&] { attack.strike(); });
      // A link may have to break for it; if it did not, it is as good as before, and every attempt has its end.
      if (a.downs + b.downs != 0) break;
      world->until([&] { return a.under_way() == 0 || a.downs + b.downs != 0; });
      if (a.downs + b.downs != 0) break;
      CHECK(world->run(a, Verb::write, attack.victim(), {{attack.bytes(), 0, 8}}) == ErrorCode::stale);
      CHECK(world->run(a, Verb::read, attack.victim(), {{attack.bytes(), 0, 8}}) == ErrorCode::stale);
    }
    if (a.downs + b.downs == 0) {
      ++kept;
      const Remote other = world->share(8);
      auto source = noise(8, seed);
      CHECK(world->run(a, Verb::write, other, {{source.data(), 0, 8}}) == ErrorCode::ok);
      CHECK(same({other.memory, 8}, source));
    } else {
      ++broken;
      world->until([&] { return a.downs == 1 && b.downs == 1; });
    }
    world->check_manners();
    for (const auto& attack : attacks) attack->check();
  }
  MESSAGE("links broken by it: " << broken << ", kept: " << kept);
}

TEST_CASE_TEMPLATE("after a side has closed and drained, nothing of the peer touches its regions", Kind, Hccs, Pcie,
                   Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  for (int round = 0; round < rounds(25); ++round) {
    const std::uint64_t seed = base_seed() + 500 + static_cast<std::uint64_t>(round) * 1000;
    CAPTURE(seed);
    auto world = World::make(Kind::kind, seed);
    Random random(seed);
    End& b = world->b();
    Attack attack(*world, seed);
    world->steps(world->some_steps(random), [&] { attack.strike(); });
    b.close();
    while (!b.drained()) world->steps(1, [&] { attack.strike(); });
    attack.reuse();
    world->steps(world->some_steps(random), [&] { attack.strike(); });
    world->until([&] { return world->a().downs == 1; });
    world->check_manners();
    attack.check();
  }
}
