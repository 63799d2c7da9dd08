// SPDX-License-Identifier: Apache-2.0
//
// Re-sharding: every target rank gets every head that it holds exactly once, from a rank that has it.
#include <map>
#include <set>

#include <doctest/doctest.h>

#include <hixl/kv/reshard.hpp>

using namespace hixl;
using namespace hixl::kv;

TEST_CASE("F127 heads over ranks: cut evenly, or each on as many ranks as it takes") {
  CHECK(head_shard(8, 8, 3).value() == Range{3, 4});
  CHECK(head_shard(8, 4, 3).value() == Range{6, 8});
  CHECK(head_shard(8, 1, 0).value() == Range{0, 8});
  CHECK(head_shard(4, 8, 0).value() == Range{0, 1});
  CHECK(head_shard(4, 8, 1).value() == Range{0, 1});
  CHECK(head_shard(4, 8, 7).value() == Range{3, 4});
  CHECK(head_shard(1, 8, 7).value() == Range{0, 1});
}

TEST_CASE("an uneven cut is refused, and so are ranks and heads that there are not") {
  for (const auto& [heads, ranks, place] : {std::tuple{8U, 3U, 0U},
                                            {6U, 4U, 0U},
                                            {3U, 2U, 0U},
                                            {0U, 1U, 0U},
                                            {8U, 0U, 0U},
                                            {8U, 4U, 4U},
                                            {65'537U, 1U, 0U},
                                            {1U, 65'537U, 0U}}) {
    const auto shard = head_shard(heads, ranks, place);
    REQUIRE_FALSE(shard);
    CHECK(shard.error().code == ErrorCode::invalid_argument);
  }
  CHECK_FALSE(reshard(8, 3, 4));
  CHECK_FALSE(reshard(8, 4, 3));
  CHECK_FALSE(reshard(0, 1, 1));
}

TEST_CASE("F127 TP 8 to 4, 4 to 8, and MLA, where all ranks hold the same") {
  CHECK(reshard(8, 8, 4).value() == std::vector<HeadMove>{{0, 0, {0, 1}},
                                                          {1, 0, {1, 2}},
                                                          {2, 1, {2, 3}},
                                                          {3, 1, {3, 4}},
                                                          {4, 2, {4, 5}},
                                                          {5, 2, {5, 6}},
                                                          {6, 3, {6, 7}},
                                                          {7, 3, {7, 8}}});
  CHECK(reshard(8, 4, 8).value() == std::vector<HeadMove>{{0, 0, {0, 1}},
                                                          {0, 1, {1, 2}},
                                                          {1, 2, {2, 3}},
                                                          {1, 3, {3, 4}},
                                                          {2, 4, {4, 5}},
                                                          {2, 5, {5, 6}},
                                                          {3, 6, {6, 7}},
                                                          {3, 7, {7, 8}}});
  CHECK(reshard(1, 4, 8).value() == std::vector<HeadMove>{{0, 0, {0, 1}},
                                                          {0, 1, {0, 1}},
                                                          {1, 2, {0, 1}},
                                                          {1, 3, {0, 1}},
                                                          {2, 4, {0, 1}},
                                                          {2, 5, {0, 1}},
                                                          {3, 6, {0, 1}},
                                                          {3, 7, {0, 1}}});
  CHECK(reshard(1, 8, 4).value() ==
        std::vector<HeadMove>{{0, 0, {0, 1}}, {2, 1, {0, 1}}, {4, 2, {0, 1}}, {6, 3, {0, 1}}});
}

TEST_CASE("all even cuts of up to 16 heads: complete, once, from a holder, and spread") {
  for (std::uint32_t heads = 1; heads <= 16; ++heads) {
    for (std::uint32_t from = 1; from <= 32; ++from) {
      for (std::uint32_t to = 1; to <= 32; ++to) {
        const auto moves = reshard(heads, from, to);
        const bool even = (heads % from == 0 || from % heads == 0) && (heads % to == 0 || to % heads == 0);
        REQUIRE(moves.has_value() == even);
        if (!even) continue;
        std::map<std::pair<std::uint32_t, std::uint32_t>, int> seen;  // target, head
        for (const HeadMove& move : *moves) {
          const Range source = head_shard(heads, from, move.source).value();
          const Range target = head_shard(heads, to, move.target).value();
          for (std::uint32_t head = move.heads.first; head < move.heads.last; ++head) {
            REQUIRE(source.first <= head);
            REQUIRE(head < source.last);
            REQUIRE(target.first <= head);
            REQUIRE(head < target.last);
            seen[{move.target, head}] += 1;
          }
        }
        std::size_t wanted = 0;
        for (std::uint32_t target = 0; target < to; ++target) wanted += head_shard(heads, to, target).value().size();
        REQUIRE(seen.size() == wanted);
        for (const auto& [place, times] : seen) REQUIRE(times == 1);
        if (from <= to && to > heads && from >= heads) {
          std::set<std::uint32_t> used;
          for (const HeadMove& move : *moves) used.insert(move.source);
          REQUIRE(used.size() == from);  // no copy is idle
        }
      }
    }
  }
}
