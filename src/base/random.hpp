// SPDX-License-Identifier: Apache-2.0
//
// Seeded random numbers (SplitMix64, Steele, Lea and Flood 2014): the same everywhere for the same seed.
#pragma once

#include <cstdint>

namespace hixl {

/// A draw as a number in [0, bound); bound > 0. The bias of the multiplication is below 2^-32 for the bounds used here.
[[nodiscard]] constexpr std::uint64_t scaled(std::uint64_t draw, std::uint64_t bound) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(draw) * bound) >> 64U);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  /// In [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound) noexcept { return scaled(next(), bound); }
  /// In [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept { return low + below(high - low + 1); }
  /// True `per_mille` times in a thousand.
  bool chance(std::uint32_t per_mille) noexcept { return below(1000) < per_mille; }
  /// Never 0.
  std::uint64_t identity() noexcept {
    for (;;) {
      if (const std::uint64_t value = next(); value != 0) return value;
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace hixl
