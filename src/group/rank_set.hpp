// SPDX-License-Identifier: Apache-2.0
//
// Sets of ranks as they travel: bit r % 64 of word r / 64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <hixl/error.hpp>

namespace hixl::group {

inline void add_rank(std::vector<std::uint64_t>& words, Rank rank) {
  const std::size_t word = rank / 64;
  if (words.size() <= word) words.resize(word + 1);
  words[word] |= std::uint64_t{1} << (rank % 64);
}
[[nodiscard]] inline bool has_rank(const std::vector<std::uint64_t>& words, Rank rank) noexcept {
  const std::size_t word = rank / 64;
  return word < words.size() && (words[word] >> (rank % 64) & 1U) != 0;
}
/// The first of them are named, all are counted.
inline void add_missing(ErrorDetail& detail, Rank rank) noexcept {
  if (detail.missing_count < detail.missing.size()) detail.missing[detail.missing_count] = rank;
  ++detail.missing_count;
}

/// Names of made groups have the top bit, names of rank lists have not.
inline constexpr std::uint64_t k_made_bit = std::uint64_t{1} << 63U;

/// FNV-1a, the same at every member; `seed` chains several.
[[nodiscard]] inline std::uint64_t hash_of(std::uint64_t value, std::uint64_t seed = 0xcbf29ce484222325U) noexcept {
  for (unsigned shift = 0; shift < 64; shift += 8) seed = (seed ^ ((value >> shift) & 0xffU)) * 0x100000001b3U;
  return seed;
}

}  // namespace hixl::group
