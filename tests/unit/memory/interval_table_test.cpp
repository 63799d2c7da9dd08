// SPDX-License-Identifier: Apache-2.0
//
// IntervalTable against a list that is searched from end to end, and readers beside a writer.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "base/random.hpp"
#include "memory/interval_table.hpp"

using namespace hixl;
using namespace hixl::memory;
using Kind = IntervalTable::Answer::Kind;

namespace {

constexpr std::uint64_t k_max = std::numeric_limits<std::uint64_t>::max();

struct Range {
  std::uint64_t base = 0;
  std::uint64_t length = 0;
  std::uint64_t age = 0;
  std::uint32_t value = 0;

  [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t bytes) const {
    return address >= base && address - base <= length && bytes <= length - (address - base);
  }
  /// Bytes between the address and the range; 0 when they touch.
  [[nodiscard]] std::uint64_t distance(std::uint64_t address) const {
    if (address < base) return base - address;
    return address - base >= length ? address - base - length + 1 : 0;
  }
};

/// What the table promises, as plainly as it can be said.
struct Reference {
  std::vector<Range> ranges;

  [[nodiscard]] const Range* newest(std::uint64_t address, std::uint64_t bytes) const {
    const Range* best = nullptr;
    for (const Range& range : ranges) {
      if (range.holds(address, bytes) && (best == nullptr || range.age > best->age)) best = &range;
    }
    return best;
  }
  [[nodiscard]] bool agrees(const IntervalTable::Answer& answer, std::uint64_t address, std::uint64_t bytes) const {
    const auto names = [&](const Range& range) {
      return answer.nearest_base == range.base && answer.nearest_length == range.length;
    };
    if (const Range* range = newest(address, bytes); range != nullptr) {
      return answer.kind == Kind::found && answer.value == range->value && names(*range);
    }
    if (const Range* range = newest(address, 1); range != nullptr) return answer.kind == Kind::partly && names(*range);
    if (answer.kind != Kind::none) return false;
    if (ranges.empty()) return answer.nearest_length == 0;
    std::uint64_t closest = k_max;
    for (const Range& range : ranges) closest = std::min(closest, range.distance(address));
    return std::any_of(ranges.begin(), ranges.end(), names) &&
           Range{answer.nearest_base, answer.nearest_length, 0, 0}.distance(address) == closest;
  }
};

/// Random insertions and removals in [origin, origin + span), each followed by look-ups in and around it.
void run_property(std::uint64_t seed, std::uint64_t origin, std::uint64_t span, std::size_t ranges_max, int steps,
                  std::uint64_t length_max, int looks) {
  INFO("seed " << seed);
  Random random(seed);
  IntervalTable table(ranges_max);
  Reference reference;
  std::uint64_t age = 0;
  // The share of insertions wanders, so that the table both fills and empties.
  std::uint32_t insert_per_mille = 700;
  for (int step = 0; step < steps; ++step) {
    if (step % 64 == 0) insert_per_mille = static_cast<std::uint32_t>(random.between(200, 900));
    if (random.chance(insert_per_mille)) {
      Range range;
      range.base = origin + random.below(span);
      // A few reach far beyond the rest, so that look-ups have to walk back over many chunks.
      const std::uint64_t length_most = random.chance(10) ? span : length_max;
      range.length = random.between(1, std::min(length_most, origin + span - range.base));
      range.age = ++age;
      range.value = static_cast<std::uint32_t>(age);
      const bool room = reference.ranges.size() < ranges_max;
      REQUIRE(table.insert(range.base, range.length, range.age, range.value) == room);
      if (room) reference.ranges.push_back(range);
    } else if (!reference.ranges.empty()) {
      const std::size_t index = random.below(reference.ranges.size());
      const Range range = reference.ranges[index];
      REQUIRE_FALSE(table.erase(range.base, static_cast<std::uint32_t>(age + 1)));
      REQUIRE(table.erase(range.base, range.value));
      REQUIRE_FALSE(table.erase(range.base, range.value));
      reference.ranges.erase(reference.ranges.begin() + static_cast<std::ptrdiff_t>(index));
    }
    REQUIRE(table.size() == reference.ranges.size());
    for (int look = 0; look < looks; ++look) {
      // Addresses behind the end wrap to 0 for the origin at the top: that is one of the cases.
      const std::uint64_t address = origin + random.below(span + 4) - 2;
      const std::uint64_t bytes = random.below(std::min(span, length_max) + 3);
      if (reference.agrees(table.find(address, bytes), address, bytes)) continue;
      FAIL("step " << step << ": wrong answer for address " << address << ", " << bytes << " bytes");
    }
  }
}

}  // namespace

TEST_CASE("interval table: small coordinates against the reference") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) run_property(seed, 16, 64, 40, 400, 64, 8);
}

TEST_CASE("interval table: the top of the address space against the reference") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) run_property(seed, k_max - 64, 64, 40, 400, 64, 8);
}

TEST_CASE("interval table: address 0 against the reference") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) run_property(seed, 0, 32, 20, 300, 8, 8);
}

TEST_CASE("interval table: many chunks against the reference") {
  run_property(101, 1 << 20, 1 << 20, 3000, 7000, 64, 1);      // mostly disjoint
  run_property(102, 1 << 20, 1 << 12, 2000, 4000, 1 << 10, 1);  // heavily nested
  run_property(103, 1 << 20, 2, 1500, 3000, 2, 1);              // the same two bases again and again
}

TEST_CASE("interval table: fills to its limit in any order and empties to nothing") {
  constexpr std::size_t k_ranges = 6000;
  for (int order = 0; order < 3; ++order) {
    INFO("order " << order);
    IntervalTable table(k_ranges);
    REQUIRE(table.capacity() == k_ranges);
    std::vector<std::uint32_t> values(k_ranges);
    for (std::uint32_t i = 0; i < k_ranges; ++i) values[i] = i;
    if (order == 1) std::reverse(values.begin(), values.end());
    Random random(7);
    if (order == 2) {
      for (std::size_t i = k_ranges - 1; i > 0; --i) std::swap(values[i], values[random.below(i + 1)]);
    }
    for (const std::uint32_t value : values) REQUIRE(table.insert(value * 16ULL, 16, value + 1, value));
    REQUIRE_FALSE(table.insert(1 << 30, 1, k_ranges + 1, 0));
    for (const std::uint32_t value : values) {
      REQUIRE(table.find(value * 16ULL, 16).value == value);
      REQUIRE(table.find(value * 16ULL, 17).kind == Kind::partly);
    }
    // Removing all but each hundredth leaves thin chunks unless they are joined; then it must fill again, three times.
    std::vector<Range> standing;
    std::size_t thinned = 0;  // these stay as they are
    for (std::uint32_t value = 0; value < k_ranges; ++value) standing.push_back({value * 16ULL, 16, 0, value});
    for (std::uint64_t round = 1; round <= 3; ++round) {
      std::vector<Range> kept;
      for (std::size_t i = 0; i < k_ranges; ++i) {
        if (i < thinned || i % 100 == 0) kept.push_back(standing[i]);
        else REQUIRE(table.erase(standing[i].base, standing[i].value));
      }
      thinned = kept.size();
      REQUIRE(table.size() == thinned);
      for (std::uint32_t i = 0; table.size() < k_ranges; ++i) {
        kept.push_back({(round << 30) + i, 1, 0, i});
        REQUIRE(table.insert(kept.back().base, 1, k_ranges + i, i));
      }
      standing = kept;
      for (const Range& range : standing) REQUIRE(table.find(range.base, range.length).value == range.value);
    }
    table.clear();
    REQUIRE(table.size() == 0);
    REQUIRE(table.find(0, 1).kind == Kind::none);
    REQUIRE(table.find(0, 1).nearest_length == 0);
    REQUIRE(table.insert(5, 1, 1, 9));
    REQUIRE(table.find(5, 1).value == 9);
  }
}

TEST_CASE("interval table: a big range around many small ones") {
  constexpr std::uint64_t k_small = 5000;
  constexpr std::uint64_t k_end = k_small * 16;
  IntervalTable table(k_small + 2);
  REQUIRE(table.insert(0, k_end, 1, 100000));
  REQUIRE(table.insert(4000, k_end - 4000, 2, 100001));
  for (std::uint32_t i = 0; i < k_small; ++i) REQUIRE(table.insert(i * 16ULL, 8, 3 + i, i));
  for (std::uint32_t i = 0; i < k_small; ++i) {
    const std::uint64_t base = i * 16ULL;
    const std::uint32_t around = base >= 4000 ? 100001 : 100000;
    REQUIRE(table.find(base, 8).value == i);
    REQUIRE(table.find(base, 9).value == around);
    REQUIRE(table.find(base, k_end - base).value == around);  // to the last byte, and not one more
    REQUIRE(table.find(base, k_end - base + 1).kind == Kind::partly);
    REQUIRE(table.find(base + 9, 1).value == around);
  }
  REQUIRE(table.erase(4000, 100001));
  REQUIRE(table.find(k_end - 1, 1).value == 100000);
  REQUIRE(table.erase(0, 100000));
  REQUIRE(table.find(k_end - 1, 1).kind == Kind::none);
}

TEST_CASE("interval table: a far-reaching range stays in sight whichever chunk it moves to") {
  constexpr std::uint32_t k_ranges = 600;  // some chunks
  constexpr std::uint64_t k_far = k_ranges * 16 + 8;
  for (std::uint32_t far = 0; far < k_ranges; far += 7) {
    for (const bool ascending : {true, false}) {
      IntervalTable table(k_ranges);
      for (std::uint32_t i = 0; i < k_ranges; ++i) {
        REQUIRE(table.insert(i * 16ULL, i == far ? k_far - i * 16ULL : 8, i + 1, i));
      }
      bool seen = true;
      for (std::uint32_t step = 0; step < k_ranges; ++step) {
        const std::uint32_t i = ascending ? step : k_ranges - 1 - step;
        if (i != far) seen = table.erase(i * 16ULL, i) && table.find(k_far - 1, 1).kind == Kind::found && seen;
      }
      CHECK_MESSAGE(seen, "range " << far);
    }
  }
}

TEST_CASE("interval table: what is refused") {
  IntervalTable table(8);
  CHECK_FALSE(table.insert(100, 0, 1, 1));
  CHECK_FALSE(table.insert(k_max, 1, 1, 1));
  CHECK_FALSE(table.insert(2, k_max - 1, 1, 1));
  CHECK(table.size() == 0);
  REQUIRE(table.insert(1, k_max - 1, 1, 1));
  CHECK(table.find(1, k_max - 1).kind == Kind::found);
  CHECK(table.find(2, k_max - 1).kind == Kind::partly);  // would wrap
  CHECK(table.find(2, k_max).kind == Kind::partly);
  CHECK(table.find(0, 1).kind == Kind::none);
  CHECK(table.find(k_max, 0).kind == Kind::found);
  CHECK(table.find(k_max, 1).kind == Kind::none);
  CHECK_FALSE(table.erase(1, 2));
  CHECK_FALSE(table.erase(2, 1));
}

TEST_CASE("interval table: readers beside a writer see each standing range, always") {
  // Standing ranges: each second kibibyte. The writer adds and removes ranges in the gaps, and ranges around two
  // neighbours, which split, join and rebalance chunks all the time.
  constexpr std::uint32_t k_standing = 1000;
  constexpr std::uint64_t k_step = 2048;
  IntervalTable table(4000);
  std::uint64_t age = 0;
  for (std::uint32_t i = 0; i < k_standing; ++i) REQUIRE(table.insert(i * k_step, 1024, ++age, i));

  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> looks{0};
  const auto reader = [&](std::uint64_t seed) {
    Random random(seed);
    while (!done.load()) {
      const auto i = static_cast<std::uint32_t>(random.below(k_standing));
      const auto whole = table.find(i * k_step, 1024);
      if (whole.kind != Kind::found || (whole.value != i && whole.value != k_standing + i)) ++wrong;
      const auto gap = table.find(i * k_step + 1024, 8);
      if (gap.kind == Kind::found && gap.value != 2 * k_standing + i && gap.value != k_standing + i) ++wrong;
      if (gap.kind == Kind::partly) ++wrong;
      ++looks;
    }
  };
  std::thread first(reader, 11);
  std::thread second(reader, 12);
  Random random(13);
  for (int round = 0; round < 6 || looks.load() < 1000; ++round) {
    std::vector<std::uint32_t> added;
    for (int k = 0; k < 1500; ++k) {
      const auto i = static_cast<std::uint32_t>(random.below(k_standing));
      const bool around = random.chance(300);
      const std::uint32_t value = (around ? k_standing : 2 * k_standing) + i;
      const std::uint64_t base = around ? i * k_step : i * k_step + 1024;
      CHECK(table.insert(base, around ? k_step + 512 : 1024, ++age, value));
      added.push_back(value);
    }
    for (const std::uint32_t value : added) {
      const bool around = value < 2 * k_standing;
      const std::uint64_t i = value % k_standing;
      CHECK(table.erase(around ? i * k_step : i * k_step + 1024, value));
    }
  }
  done = true;
  first.join();
  second.join();
  CHECK(wrong.load() == 0);
  CHECK(table.size() == k_standing);
}
