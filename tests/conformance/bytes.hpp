// SPDX-License-Identifier: Apache-2.0
//
// Bytes that tests can recognise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.hpp"

namespace conformance {

inline constexpr std::byte k_canary{0xa5};
inline constexpr std::size_t k_canary_bytes = 64;

inline void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  hixl::Random random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
}
[[nodiscard]] inline std::vector<std::byte> noise(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  fill(bytes, seed);
  return bytes;
}
[[nodiscard]] inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
[[nodiscard]] inline bool all(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte byte) { return byte == value; });
}

/// A buffer between two canaries.
class Guarded {
 public:
  explicit Guarded(std::size_t size) : bytes_(size + 2 * k_canary_bytes, k_canary) {}
  [[nodiscard]] std::span<std::byte> span() {
    return std::span(bytes_).subspan(k_canary_bytes, bytes_.size() - 2 * k_canary_bytes);
  }
  [[nodiscard]] std::byte* data() { return span().data(); }
  [[nodiscard]] bool intact() const {
    return all(std::span(bytes_).first(k_canary_bytes), k_canary) &&
           all(std::span(bytes_).last(k_canary_bytes), k_canary);
  }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace conformance
