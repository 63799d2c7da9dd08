// SPDX-License-Identifier: Apache-2.0
//
// The oracle itself: what it must see, and that it sees nothing where nothing is.
#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "oracle.hpp"

using namespace hixl::test;

namespace {

constexpr std::size_t k_bytes = 4096;

std::vector<std::byte> block_of(std::uint64_t transfer) {
  std::vector<std::byte> block(k_bytes);
  fill_block(block.data(), k_bytes, transfer);
  return block;
}

}  // namespace

TEST_CASE("a whole block has no fault, and is no other transfer's at any place") {
  const auto block = block_of(7);
  CHECK(fault_of(block.data(), k_bytes, 7).empty());
  for (const std::uint64_t other : {std::uint64_t{0}, std::uint64_t{6}, std::uint64_t{8}, ~std::uint64_t{7}}) {
    for (std::size_t at = 0; at < k_bytes; at += 8) {
      CHECK(wrong_at(block.data() + at, 8, other) == std::size_t{0});
    }
  }
}

TEST_CASE("one bit, a shift by a word, and the tail of another transfer show where they are") {
  auto block = block_of(7);
  block[1234] ^= std::byte{1};
  CHECK(wrong_at(block.data(), k_bytes, 7) == std::size_t{1232});
  CHECK(fault_of(block.data(), k_bytes, 7) == "transfer 7: the first wrong word is at byte 1232 of 4096, 1 are wrong");

  block = block_of(7);
  std::rotate(block.begin(), block.begin() + 8, block.end());
  CHECK(wrong_at(block.data(), k_bytes, 7) == std::size_t{0});

  block = block_of(7);
  const auto late = block_of(8);
  std::copy(late.begin() + 2048, late.end(), block.begin() + 2048);
  CHECK(wrong_at(block.data(), k_bytes, 7) == std::size_t{2048});
}
