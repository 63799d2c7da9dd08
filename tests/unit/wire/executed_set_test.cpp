// SPDX-License-Identifier: Apache-2.0
//
// ExecutedSet against a plain set of numbers.
#include <doctest/doctest.h>

#include <set>

#include "base/random.hpp"
#include "wire/messages.hpp"

using namespace hixl;
using namespace hixl::wire;

namespace {

bool expected(const std::set<LinkSeq>& executed, LinkSeq highest, LinkSeq seq) {
  return seq + 1024 > highest && executed.contains(seq);
}

void check_against_reference(std::uint64_t seed, std::uint64_t gap_max) {
  INFO("seed ", seed, " gap ", gap_max);
  Random random(seed);
  ExecutedSet set;
  std::set<LinkSeq> executed;
  for (int i = 0; i < 300; ++i) {
    const LinkSeq seq = set.highest + random.between(1, gap_max);
    const bool done = random.chance(600);
    set.record(seq, done);
    if (done) executed.insert(seq);
    REQUIRE(set.highest == seq);
    for (int probe = 0; probe < 50; ++probe) {
      const LinkSeq asked = random.below(seq + 3);
      REQUIRE(set.contains(asked) == expected(executed, seq, asked));
    }
  }
  for (LinkSeq seq = set.highest > 3000 ? set.highest - 3000 : 0; seq <= set.highest + 2; ++seq) {
    REQUIRE(set.contains(seq) == expected(executed, set.highest, seq));
  }
}

}  // namespace

TEST_CASE("executed set: the same as a set of numbers, over gaps of every size") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const std::uint64_t gap_max : {1, 2, 64, 65, 130, 1023, 1025, 5000}) check_against_reference(seed, gap_max);
  }
}

TEST_CASE("executed set: edges of the window") {
  ExecutedSet set;
  CHECK(!set.contains(0));
  CHECK(!set.contains(1));
  for (LinkSeq seq = 1; seq <= 1024; ++seq) set.record(seq, true);
  CHECK(set.contains(1));
  CHECK(set.contains(1024));
  CHECK(!set.contains(0));
  CHECK(!set.contains(1025));
  set.record(1025, false);
  CHECK(!set.contains(1));
  CHECK(set.contains(2));
  CHECK(!set.contains(1025));

  // A jump over the whole window forgets it, also when the distance does not fit in fewer bits.
  set.record(1025 + 1024, true);
  CHECK(!set.contains(1025 + 1));
  set.record(~LinkSeq{0}, true);
  CHECK(set.contains(~LinkSeq{0}));
  CHECK(!set.contains(1025 + 1024));
  CHECK(set == ExecutedSet{.highest = ~LinkSeq{0}, .bits = {1}});
}
