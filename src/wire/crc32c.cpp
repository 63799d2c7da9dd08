// SPDX-License-Identifier: Apache-2.0
//
// CRC32C by isa-l, the one file that includes it. isa-l leaves both inversions of the standard to its caller.
#include <algorithm>
#include <cstddef>

#include <isa-l.h>

#include "wire/frame.hpp"

namespace hixl::wire {

std::uint32_t crc32c(ConstBytes bytes, std::uint32_t seed) noexcept {
  // isa-l takes its length as an int.
  constexpr std::size_t k_piece_bytes_max = std::size_t{1} << 30U;
  std::uint32_t state = ~seed;
  while (!bytes.empty()) {
    const ConstBytes piece = bytes.first(std::min(bytes.size(), k_piece_bytes_max));
    // isa-l only reads, but its declaration of 2.30 lacks the const.
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(piece.data()));
    state = crc32_iscsi(data, static_cast<int>(piece.size()), state);
    bytes = bytes.subspan(piece.size());
  }
  return ~state;
}

}  // namespace hixl::wire
