// SPDX-License-Identifier: Apache-2.0
//
// Planning a batch, against arrays to which its entries are applied one after another.
#include "peer/entry_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/random.hpp"

using namespace hixl;
using namespace hixl::peer;

namespace {

constexpr std::uint64_t k_bytes = 400;

/// A batch as the program wrote it, and as it was planned.
struct Batch {
  std::vector<Entry> given;
  std::vector<Entry> planned;
  EntryPlan plan;

  void add(const Entry& entry) {
    given.push_back(entry);
    plan.add(planned, entry, written_at(entry));
  }
  /// Regions lie next to each other at the target, and region 2 is a second name of the first half of region 1.
  static std::uint64_t target(const Entry& entry) { return (entry.region.id == 0 ? 0 : k_bytes) + entry.offset; }
  static std::uint64_t written_at(const Entry& entry) {
    return entry.verb == TransferVerb::put ? target(entry) : reinterpret_cast<std::uint64_t>(entry.local);
  }
};

/// For each written byte the one that it was taken from.
using Effect = std::map<std::pair<TransferVerb, std::uint64_t>, std::uint64_t>;

Effect apply(const std::vector<Entry>& entries) {
  Effect effect;
  for (const Entry& entry : entries) {
    const bool put = entry.verb == TransferVerb::put;
    for (std::uint64_t i = 0; i < entry.size; ++i) {
      const std::uint64_t here = reinterpret_cast<std::uint64_t>(entry.local) + i;
      const std::uint64_t there = Batch::target(entry) + i;
      effect[{entry.verb, put ? there : here}] = put ? here : there;
    }
  }
  return effect;
}

std::uint64_t bytes_of(const std::vector<Entry>& entries) {
  std::uint64_t sum = 0;
  for (const Entry& entry : entries) sum += entry.size;
  return sum;
}

Entry entry_of(std::byte* local, std::uint64_t offset, std::uint64_t size, TransferVerb verb = TransferVerb::put) {
  return {.verb = verb,
          .local = local,
          .device = &memory::host_device(),
          .region = {.id = 0, .generation = 1},
          .offset = offset,
          .size = size};
}

}  // namespace

TEST_CASE("F100: a planned batch ends as its entries would one after another, and meets itself nowhere") {
  std::vector<std::byte> memory(k_bytes);
  EntryPlan plan;
  std::uint64_t joined = 0;
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    INFO("seed ", seed);
    Random random(seed);
    Batch batch;
    batch.plan = std::move(plan);
    const std::size_t count = random.between(1, 24);
    const std::uint64_t size_max = random.between(1, 120);
    for (std::size_t i = 0; i < count; ++i) {
      Entry entry = entry_of(nullptr, 0, random.chance(100) ? 0 : random.between(1, size_max),
                             random.chance(700) ? TransferVerb::put : TransferVerb::get);
      entry.region.id = static_cast<std::uint32_t>(random.below(3));
      entry.device = random.chance(950) ? &memory::host_device() : nullptr;
      const std::uint64_t room = entry.region.id == 2 ? k_bytes / 2 : k_bytes;
      entry.offset = random.below(room - entry.size + 1);
      entry.local = memory.data() + random.below(k_bytes - entry.size + 1);
      if (const auto& last = batch.given; !last.empty() && random.chance(300)) {  // the one before goes on
        entry.region = last.back().region;
        entry.verb = last.back().verb;
        entry.size = std::min(
            {entry.size, (entry.region.id == 2 ? k_bytes / 2 : k_bytes) - last.back().offset - last.back().size,
             k_bytes - static_cast<std::uint64_t>(last.back().local - memory.data()) - last.back().size});
        entry.offset = last.back().offset + last.back().size;
        entry.local = last.back().local + last.back().size;
      }
      batch.add(entry);
      if (random.chance(50)) batch.add(entry);  // twice the same
    }
    batch.plan.finish(batch.planned);
    const Effect wanted = apply(batch.given);
    REQUIRE(apply(batch.planned) == wanted);
    REQUIRE(bytes_of(batch.planned) == wanted.size());  // each byte is written once, so that order does not matter
    REQUIRE(batch.planned.size() <= 2 * batch.given.size());
    for (const Entry& entry : batch.planned) REQUIRE(entry.size > 0);
    joined += batch.plan.coalesced();
    batch.plan.clear(batch.planned);
    REQUIRE(batch.planned.empty());
    REQUIRE(batch.plan.coalesced() == 0);
    plan = std::move(batch.plan);  // the next batch of the slot
  }
  CHECK(joined > 1000);
}

TEST_CASE("F100: neighbours on both sides become one entry, others do not") {
  std::vector<std::byte> memory(1000);
  Batch batch;
  SUBCASE("in order") {
    for (std::uint64_t i = 0; i < 10; ++i) batch.add(entry_of(memory.data() + i * 10, i * 10, 10));
    batch.plan.finish(batch.planned);
    CHECK(batch.planned.size() == 1);
    CHECK(batch.plan.coalesced() == 9);
  }
  SUBCASE("in any order") {
    for (std::uint64_t i = 0; i < 10; ++i) {
      const std::uint64_t at = i * 7 % 10 * 10;
      batch.add(entry_of(memory.data() + at, at, 10));
    }
    batch.plan.finish(batch.planned);
    CHECK(batch.planned.size() == 1);
    CHECK(batch.planned.front().size == 100);
    CHECK(batch.plan.coalesced() == 9);
  }
  SUBCASE("on one side only") {
    for (std::uint64_t i = 0; i < 10; ++i) batch.add(entry_of(memory.data() + i * 20, i * 10, 10));
    batch.plan.finish(batch.planned);
    CHECK(batch.planned.size() == 10);
    CHECK(batch.plan.coalesced() == 0);
  }
  SUBCASE("verbs in turn are grouped") {
    for (std::uint64_t i = 0; i < 10; ++i) {
      batch.add(entry_of(memory.data() + i * 10, i * 10, 10));
      batch.add(entry_of(memory.data() + 500 + i * 10, 200 + i * 10, 10, TransferVerb::get));
    }
    batch.plan.finish(batch.planned);
    CHECK(batch.planned.size() == 2);
    CHECK(batch.plan.coalesced() == 18);
  }
}
