// SPDX-License-Identifier: Apache-2.0
//
// The parts of the Prefill/Decode simulator that decide what its report is worth: the pattern, the paged pool, traces.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "block_pool.hpp"
#include "pattern.hpp"
#include "policy.hpp"
#include "trace.hpp"

namespace pd {
namespace {

TEST_CASE("a block is good only in its own place, whole and unchanged") {
  std::vector<std::uint64_t> words(512);
  fill_block(words, 7, 3);
  CHECK(check_block(words, 7, 3) == BlockState::good);
  CHECK(check_block(words, 7, 4) == BlockState::misplaced);
  CHECK(check_block(words, 8, 3) == BlockState::misplaced);
  for (const std::size_t word : {std::size_t{0}, std::size_t{1}, std::size_t{2}, words.size() - 1}) {
    auto changed = words;
    changed[word] ^= 1U << 5U;
    CHECK(check_block(changed, 7, 3) != BlockState::good);
  }
  auto swapped = words;  // the same sum
  std::swap(swapped[10], swapped[11]);
  CHECK(check_block(swapped, 7, 3) != BlockState::good);
  auto torn = words;
  fill_block(words, 7, 5);
  std::copy(words.begin() + 256, words.end(), torn.begin() + 256);
  CHECK(check_block(torn, 7, 3) != BlockState::good);
}

std::set<std::uint32_t> blocks_of(const std::vector<BlockPool::Place>& places) {
  std::set<std::uint32_t> blocks;
  for (const BlockPool::Place& place : places) blocks.insert(place.block);
  return blocks;
}

TEST_CASE("the pool shares what is held, and gives nothing away that is in use") {
  BlockPool pool(4);
  const std::vector<std::uint64_t> names{1, 2, 3};
  const auto first = pool.take(names);
  REQUIRE(first);
  CHECK(blocks_of(*first).size() == 3);
  // Not published yet: nobody may rely on the content.
  CHECK_FALSE(pool.take(std::vector<std::uint64_t>{1, 2}));
  CHECK(pool.in_use() == 3);
  for (const auto& place : *first) pool.publish(place.block);
  const auto second = pool.take(std::vector<std::uint64_t>{1, 2, 9});
  REQUIRE(second);
  CHECK((*second)[0].reused);
  CHECK((*second)[1].reused);
  CHECK_FALSE((*second)[2].reused);
  CHECK((*second)[0].block == (*first)[0].block);
  CHECK_FALSE(pool.take(std::vector<std::uint64_t>{10}));
  pool.release(*first);
  CHECK(pool.in_use() == 3);
  const auto third = pool.take(std::vector<std::uint64_t>{3});  // released, but still there
  REQUIRE(third);
  CHECK((*third)[0].reused);
  pool.release(*second);
  pool.release(*third);
  CHECK(pool.in_use() == 0);
}

TEST_CASE("a request that does not fit takes nothing") {
  BlockPool pool(3);
  const auto held = pool.take(std::vector<std::uint64_t>{1});
  REQUIRE(held);
  pool.publish((*held)[0].block);
  pool.release(*held);
  CHECK_FALSE(pool.take(std::vector<std::uint64_t>{1, 2, 3, 4}));
  CHECK(pool.in_use() == 0);
  const auto again = pool.take(std::vector<std::uint64_t>{1, 2, 3});
  REQUIRE(again);
  CHECK((*again)[0].reused);
}

TEST_CASE("the least recently used content goes first") {
  BlockPool pool(2);
  for (const std::uint64_t name : {1U, 2U}) {
    const auto places = pool.take(std::vector<std::uint64_t>{name});
    REQUIRE(places);
    pool.publish((*places)[0].block);
    pool.release(*places);
  }
  REQUIRE(pool.take(std::vector<std::uint64_t>{3}));
  const auto held = pool.take(std::vector<std::uint64_t>{2});
  REQUIRE(held);
  CHECK((*held)[0].reused);
}

TEST_CASE("policies choose among the living") {
  const std::vector<DecodeLoad> living{{0, 5}, {2, 1}, {3, 9}};
  CHECK(make_policy("least_loaded")->choose(living) == 2);
  CHECK(make_policy("most_loaded")->choose(living) == 3);
  // The lesser of two that may be the same: the most loaded of three in one of nine.
  std::uint32_t most = 0;
  const auto two = make_policy("two_choices");
  for (int i = 0; i < 900; ++i) most += two->choose(living) == 3 ? 1 : 0;
  CHECK(most > 50);
  CHECK(most < 150);
  const auto turns = make_policy("round_robin");
  CHECK(turns->choose(living) == 0);
  CHECK(turns->choose(living) == 2);
  CHECK(turns->choose(living) == 3);
  CHECK(turns->choose(living) == 0);
  CHECK(make_policy("other") == nullptr);
}

TEST_CASE("made-up traces are the same for the same seed, in order, and share prefixes") {
  const auto requests = generate_trace({.seed = 5, .requests = 300});
  const auto again = generate_trace({.seed = 5, .requests = 300});
  REQUIRE(requests.size() == 300);
  std::set<std::uint64_t> seen;
  std::size_t blocks = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CHECK(requests[i].hash_ids == again[i].hash_ids);
    CHECK((i == 0 || requests[i].arrival_s >= requests[i - 1].arrival_s));
    CHECK(requests[i].hash_ids.size() <= k_request_blocks_max);
    CHECK(std::set(requests[i].hash_ids.begin(), requests[i].hash_ids.end()).size() == requests[i].hash_ids.size());
    blocks += requests[i].hash_ids.size();
    seen.insert(requests[i].hash_ids.begin(), requests[i].hash_ids.end());
  }
  CHECK(seen.size() < blocks * 9 / 10);
}

}  // namespace
}  // namespace pd
