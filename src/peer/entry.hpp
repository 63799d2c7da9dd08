// SPDX-License-Identifier: Apache-2.0
//
// Entry: what an operation moves, as a plain value.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hixl/types.hpp>

#include "memory/device.hpp"

namespace hixl::peer {

/// A checked range: local memory here, a place in a region there. With a stride it is a row of equal blocks, which
/// stays one entry however many they are; they are numbered by their bytes, block after block.
struct Entry {
  TransferVerb verb = TransferVerb::put;
  std::byte* local = nullptr;
  memory::Device* device = nullptr;
  RegionKey region{};
  Token token{};
  std::uint64_t offset = 0;
  std::uint64_t size = 0;           ///< of all blocks, without the gaps
  std::uint64_t block = 0;          ///< bytes of one block; 0: one piece
  std::uint64_t local_stride = 0;   ///< from the start of a block to that of the next
  std::uint64_t remote_stride = 0;  ///< the same at the target

  /// Bytes that lie next to each other on both sides, from `at` on (below size).
  struct Run {
    std::byte* local;
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  [[nodiscard]] Run run_at(std::uint64_t at) const noexcept {
    if (block == 0) return {local + at, offset + at, size - at};
    const std::uint64_t index = at / block;
    const std::uint64_t inside = at % block;
    return {local + index * local_stride + inside, offset + index * remote_stride + inside, block - inside};
  }
};

}  // namespace hixl::peer
