// SPDX-License-Identifier: Apache-2.0
//
// High-water marks of sequences: what is new since the last time, and when nothing may be taken for moved.
#include <doctest/doctest.h>

#include "marks.hpp"

using namespace hixl;
using namespace hixl::kv;

namespace {

MarkKey key(std::uint64_t sequence, std::uint64_t version = 1) {
  MarkKey made;
  made.sequence = sequence;
  made.rank = 1;
  made.incarnation = 7;
  made.remote_version = version;
  made.local_version = 3;
  return made;
}
using Table = std::vector<std::uint32_t>;

std::optional<std::uint32_t> begin(Marks& marks, const MarkKey& which, const Table& blocks, std::uint32_t block_tokens,
                                   std::uint64_t lease = 0) {
  return marks.begin(which, {.blocks = blocks, .block_tokens = block_tokens, .lease = lease});
}

}  // namespace

TEST_CASE("F117 a sequence that grows moves what is new, and all of it for another cache, rank or version") {
  Marks marks(10);
  CHECK(begin(marks, key(5), Table{4}, 16) == 0U);
  marks.end(key(5), true, 10);
  CHECK(begin(marks, key(5), Table{4, 9}, 16) == 10U);
  marks.end(key(5), true, 20);
  CHECK(begin(marks, key(5), Table{4, 9}, 16) == 20U);
  marks.end(key(5), true, 20);
  CHECK(begin(marks, key(6), Table{4, 9}, 16) == 0U);
  CHECK(begin(marks, key(5, 2), Table{4, 9}, 16) == 0U);
}

TEST_CASE("one transfer of a sequence at a time; a failure moves no mark") {
  Marks marks(10);
  CHECK(begin(marks, key(5), Table{4}, 16) == 0U);
  CHECK_FALSE(begin(marks, key(5), Table{4}, 16));
  marks.end(key(5), true, 10);
  CHECK(begin(marks, key(5), Table{4, 6}, 16) == 10U);
  marks.end(key(5), false, 30);
  CHECK(begin(marks, key(5), Table{4, 6}, 16) == 10U);
}

TEST_CASE("a block that was exchanged for another counts as new, with all behind it") {
  Marks marks(10);
  CHECK(begin(marks, key(5), Table{1, 2, 3}, 4) == 0U);
  marks.end(key(5), true, 11);
  CHECK(begin(marks, key(5), Table{1, 7, 3, 4}, 4) == 4U);
  marks.end(key(5), true, 13);
  CHECK(begin(marks, key(5), Table{1, 7}, 4) == 8U);
}

TEST_CASE("rewind takes tokens back, also while a transfer is open") {
  Marks marks(10);
  CHECK(begin(marks, key(5), Table{1, 2}, 16) == 0U);
  marks.end(key(5), true, 30);
  marks.rewind(5, 20);
  CHECK(begin(marks, key(5), Table{1, 2}, 16) == 20U);
  marks.rewind(5, 12);
  marks.end(key(5), true, 32);
  CHECK(begin(marks, key(5), Table{1, 2}, 16) == 12U);
  marks.end(key(5), true, 32);
  CHECK(begin(marks, key(5), Table{1, 2}, 16) == 32U);
  marks.rewind(9, 0);
}

TEST_CASE("what is forgotten is moved whole again, and there are never more than were allowed") {
  Marks marks(2);
  CHECK(begin(marks, key(1), Table{1}, 16) == 0U);
  marks.end(key(1), true, 5);
  CHECK(begin(marks, key(2), Table{1}, 16) == 0U);
  marks.end(key(2), true, 5);
  CHECK(begin(marks, key(1), Table{1}, 16) == 5U);  // open, so 2 gives way
  CHECK(begin(marks, key(3), Table{1}, 16) == 0U);
  CHECK(marks.size() == 2);
  marks.end(key(1), true, 6);
  CHECK(begin(marks, key(1), Table{1}, 16) == 6U);
  marks.forget_rank(1);
  CHECK(marks.size() == 0);
  marks.end(key(1), true, 9);  // forgotten while open
  CHECK(begin(marks, key(1), Table{1}, 16) == 0U);
  marks.end(key(1), true, 9);
  marks.forget_local(3);
  CHECK(begin(marks, key(1), Table{1}, 16) == 0U);
}

TEST_CASE("under another lease, or none, all of it moves again") {
  Marks marks(8);
  CHECK(begin(marks, key(5), Table{4}, 16, 1) == 0U);
  marks.end(key(5), true, 10);
  CHECK(begin(marks, key(5), Table{4}, 16, 1) == 10U);
  marks.end(key(5), true, 12);
  CHECK(begin(marks, key(5), Table{4}, 16, 2) == 0U);
  marks.end(key(5), false, 12);
  CHECK(begin(marks, key(5), Table{4}, 16, 1) == 0U);
  marks.end(key(5), true, 12);
  CHECK(begin(marks, key(5), Table{4}, 16) == 0U);
}
