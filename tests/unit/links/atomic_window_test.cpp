// SPDX-License-Identifier: Apache-2.0
//
// The window that makes atomics exactly-once: against a model under any order and any repeats, and at its edges.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <map>
#include <set>

#include "base/random.hpp"
#include "tcp_world.hpp"

using namespace hixl;
using namespace hixl::links;
using namespace hixl::test;
using wire::AtomicOp;

namespace {

struct Bench {
  Guarded memory{64};
  Side side;
  memory::RegionInfo region = side.add(memory.span());
  runtime::Loop& loop() { return side.loop; }
  explicit Bench(runtime::Loop& on) : side(on, 5) {}

  [[nodiscard]] wire::AtomicBody body(AtomicSeq number, AtomicSeq acked, std::uint64_t value = 1,
                                      std::uint64_t offset = 0) const {
    return {.region = region.key,
            .token = region.token,
            .offset = offset,
            .number = number,
            .acked_upto = acked,
            .value = value};
  }
  [[nodiscard]] ErrorCode refusal(AtomicWindow& window, const wire::AtomicBody& body) {
    const auto result = window.execute(body, *side.regions, *side.signals);
    return result ? ErrorCode::ok : result.error().code;
  }
  [[nodiscard]] std::uint64_t execute(AtomicWindow& window, const wire::AtomicBody& body) {
    const auto result = window.execute(body, *side.regions, *side.signals);
    REQUIRE(result);
    return *result;
  }
  [[nodiscard]] std::uint64_t word(std::size_t offset = 0) {
    return memory::load_word(memory::host_device(), memory.data() + offset);
  }
};

std::uint64_t apply(AtomicOp op, std::uint64_t& word, std::uint64_t value, std::uint64_t expected) {
  const std::uint64_t before = word;
  if (op == AtomicOp::add) word += value;
  if (op == AtomicOp::swap) word = value;
  if (op == AtomicOp::compare_swap && word == expected) word = value;
  return before;
}

}  // namespace

TEST_CASE("S5: any order, any repeats: each atomic once, and the same answer every time") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed ", seed);
    PipePair pair;
    Bench bench(pair.ends[0].loop);
    Random random(seed);
    const auto size = static_cast<std::uint32_t>(random.between(1, 40));
    AtomicWindow window(size);
    std::map<AtomicSeq, wire::AtomicBody> unanswered;  // the initiator's view
    std::map<AtomicSeq, std::uint64_t> answers;        // of the model; only what may still be asked
    std::set<AtomicSeq> cancelled;
    std::uint64_t words[8] = {};
    std::uint64_t repeats = 0;
    AtomicSeq last = 0;
    for (int step = 0; step < 500; ++step) {
      const AtomicSeq acked = unanswered.empty() ? last : unanswered.begin()->first - 1;
      if (last - acked < size && (unanswered.empty() || random.chance(400))) {
        wire::AtomicBody fresh = bench.body(++last, acked, random.below(3), random.below(8) * 8);
        fresh.op = static_cast<AtomicOp>(random.below(3));
        if (fresh.op == AtomicOp::compare_swap) fresh.expected = random.below(3);
        unanswered[last] = fresh;
        continue;
      }
      auto chosen = unanswered.begin();
      std::advance(chosen, static_cast<std::ptrdiff_t>(random.below(unanswered.size())));
      wire::AtomicBody asked = chosen->second;
      asked.acked_upto = random.between(asked.acked_upto, acked);  // older frames say less
      asked.ask = static_cast<std::uint8_t>(random.chance(100) ? 1 : 0);
      const auto known = answers.find(asked.number);
      if (known == answers.end() && (asked.ask != 0 || cancelled.contains(asked.number))) {
        REQUIRE(bench.refusal(window, asked) == ErrorCode::cancelled);
        cancelled.insert(asked.number);
      } else {
        repeats += known != answers.end() ? 1 : 0;
        const std::uint64_t expected = known != answers.end()
                                           ? known->second
                                           : apply(asked.op, words[asked.offset / 8], asked.value, asked.expected);
        answers[asked.number] = expected;
        REQUIRE(bench.execute(window, asked) == expected);
      }
      for (std::size_t i = 0; i < 8; ++i) REQUIRE(bench.word(i * 8) == words[i]);
      if (random.chance(500)) unanswered.erase(chosen);  // the answer has come; else it was lost
    }
    CHECK(window.repeats() == repeats);
    CHECK(window.turned_away() == 0);
    CHECK(bench.memory.canaries_whole());
  }
}

TEST_CASE("the edges of the window: acknowledged, beyond, and the next life") {
  PipePair pair;
  Bench bench(pair.ends[0].loop);
  AtomicWindow window(4);
  CHECK(bench.execute(window, bench.body(4, 0)) == 0);
  CHECK(bench.refusal(window, bench.body(5, 0)) == ErrorCode::busy);
  CHECK(window.turned_away() == 1);
  CHECK(bench.execute(window, bench.body(5, 1)) == 1);
  CHECK(bench.refusal(window, bench.body(1, 0)) == ErrorCode::malformed_frame);  // acknowledged meanwhile
  CHECK(bench.execute(window, bench.body(4, 0)) == 0);                           // still remembered
  CHECK(bench.execute(window, bench.body(~AtomicSeq{0}, ~AtomicSeq{0} - 1)) == 2);
  CHECK(bench.execute(window, bench.body(~AtomicSeq{0}, ~AtomicSeq{0} - 1)) == 2);
  CHECK(bench.refusal(window, bench.body(5, 4)) == ErrorCode::malformed_frame);
  CHECK(bench.word() == 3);
  window.reset();
  CHECK(bench.execute(window, bench.body(1, 0)) == 3);
}

TEST_CASE("what a region refuses is not executed, is not remembered, and may be asked again") {
  PipePair pair;
  Bench bench(pair.ends[0].loop);
  AtomicWindow window;
  wire::AtomicBody body = bench.body(1, 0);
  body.offset = 4;
  CHECK(bench.refusal(window, body) == ErrorCode::unaligned);
  body.offset = 64;
  CHECK(bench.refusal(window, body) == ErrorCode::out_of_range);
  body.offset = ~std::uint64_t{0} - 7;
  CHECK(bench.refusal(window, body) == ErrorCode::out_of_range);
  body = bench.body(1, 0);
  body.token.high ^= 1;
  CHECK(bench.refusal(window, body) == ErrorCode::access_denied);
  body = bench.body(1, 0);
  body.region.generation += 1;
  CHECK(bench.refusal(window, body) == ErrorCode::stale);
  Guarded plain(64);
  const auto no_atomics = bench.side.add(plain.span(), Rights::read | Rights::write);
  body = bench.body(1, 0);
  body.region = no_atomics.key;
  body.token = no_atomics.token;
  CHECK(bench.refusal(window, body) == ErrorCode::access_denied);
  CHECK(plain.all(std::byte{0}));
  CHECK(bench.memory.all(std::byte{0}));
  CHECK(bench.execute(window, bench.body(1, 0)) == 0);
  CHECK(bench.word() == 1);
}

TEST_CASE("a word that its program has unmapped without a word is refused, and nobody dies of it") {
  PipePair pair;
  Bench bench(pair.ends[0].loop);
  AtomicWindow window;
  constexpr std::size_t k_page = 4096;
  void* const page = ::mmap(nullptr, k_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  const auto gone = bench.side.add({static_cast<std::byte*>(page), k_page});
  REQUIRE(::munmap(page, k_page) == 0);
  wire::AtomicBody body = bench.body(1, 0);
  body.region = gone.key;
  body.token = gone.token;
  CHECK(bench.refusal(window, body) == ErrorCode::memory_unmapped);
  CHECK(bench.execute(window, bench.body(1, 0)) == 0);
}

TEST_CASE("an answer outlives the region that it came from") {
  PipePair pair;
  Bench bench(pair.ends[0].loop);
  AtomicWindow window;
  CHECK(bench.execute(window, bench.body(1, 0, 7)) == 0);
  REQUIRE(bench.side.regions->close(bench.region.key));
  CHECK(bench.execute(window, bench.body(1, 0, 7)) == 0);
  CHECK(bench.refusal(window, bench.body(2, 1)) == ErrorCode::stale);
}
