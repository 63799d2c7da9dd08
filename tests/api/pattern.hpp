// SPDX-License-Identifier: Apache-2.0
//
// Test data, for tests and for the programs that they start.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hixl::test {

/// Bytes that depend on position and seed, so that swapped or shifted data is seen.
inline void fill_pattern(std::byte* data, std::size_t size, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  for (std::size_t i = 0; i < size; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    data[i] = static_cast<std::byte>(state >> 56U);
  }
}
inline bool holds_pattern(const std::byte* data, std::size_t size, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  for (std::size_t i = 0; i < size; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    if (data[i] != static_cast<std::byte>(state >> 56U)) return false;
  }
  return true;
}

}  // namespace hixl::test
