// SPDX-License-Identifier: Apache-2.0
//
// What stands in for KV values: bytes that depend on the block's content name, the layer and the offset, so that a
// block in the wrong place, a torn one and a stale one all show. One pass at memory speed to write, one to check.
#pragma once

#include <cstdint>
#include <span>

namespace pd {

/// Smallest block of one layer: tag, checksum and some content.
inline constexpr std::uint64_t k_block_layer_bytes_min = 64;

namespace detail {
/// Words of a block grow by an odd constant, so no two offsets of a block hold the same word.
inline constexpr std::uint64_t k_step = 0x9e3779b97f4a7c15U;

inline std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}
inline std::uint64_t seed_of(std::uint64_t hash_id, std::uint32_t layer) {
  return mix(mix(hash_id + 1) + (std::uint64_t{layer} + 1) * k_step);
}
}  // namespace detail

/// Word 0: who this block is. Word 1: sum of the rest. The rest: the content.
inline void fill_block(std::span<std::uint64_t> words, std::uint64_t hash_id, std::uint32_t layer) {
  const std::uint64_t seed = detail::seed_of(hash_id, layer);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 2; i < words.size(); ++i) {
    const std::uint64_t word = seed + i * detail::k_step;
    words[i] = word;
    sum += word;
  }
  words[0] = detail::mix(seed);
  words[1] = sum;
}

enum class BlockState : std::uint8_t { good, misplaced, corrupt };

[[nodiscard]] inline BlockState check_block(std::span<const std::uint64_t> words, std::uint64_t hash_id,
                                            std::uint32_t layer) {
  const std::uint64_t seed = detail::seed_of(hash_id, layer);
  std::uint64_t sum = 0;
  std::uint64_t difference = 0;
  for (std::uint64_t i = 2; i < words.size(); ++i) {
    sum += words[i];
    difference |= words[i] ^ (seed + i * detail::k_step);
  }
  if (sum != words[1]) return BlockState::corrupt;
  return words[0] == detail::mix(seed) && difference == 0 ? BlockState::good : BlockState::misplaced;
}

}  // namespace pd
