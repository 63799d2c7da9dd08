// SPDX-License-Identifier: Apache-2.0
//
// How a ring of messages lies in memory, and where its next message goes. Sender and receiver count the same way, so
// that a message is announced by its size alone: one signal word a message, in any order of arrival.
//
//   0   messages released (the receiver's CPU)
//   8   bytes released (the same)
//   16  version of this layout, slots, bytes: what the receiver means, for who attaches
//   64  the same of the ring that the other side of a channel receives by, then that ring's name
//   128 `slots` words, one a message: its round and its size; 0: none came yet
//   …   `bytes` of messages, each from a multiple of 64 on and in one piece
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include <hixl/channel.hpp>

namespace hixl::core {

inline constexpr std::uint64_t k_ring_released = 0;
inline constexpr std::uint64_t k_ring_bytes_released = 8;
inline constexpr std::uint64_t k_ring_version = 16;
inline constexpr std::uint64_t k_ring_slots = 24;
inline constexpr std::uint64_t k_ring_bytes = 32;
inline constexpr std::uint64_t k_ring_version_now = 1;
inline constexpr std::uint64_t k_ring_other = 64;
inline constexpr std::uint64_t k_ring_other_name = 88;
inline constexpr std::uint64_t k_ring_words = 128;
inline constexpr std::uint64_t k_ring_align = 64;
inline constexpr std::uint64_t k_word = 8;
inline constexpr unsigned k_size_bits = 48;  // the round has the rest

/// Finds the first of version, slots and bytes at `said` in which a shape differs from it. INVALID_ARGUMENT or
/// VERSION_MISMATCH: length is what is meant here, limit what is said.
[[nodiscard]] inline Result<void> compare_shapes(const RingShape& shape, const std::byte* said, Rank rank) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(said);
  const std::uint64_t mine[] = {k_ring_version_now, shape.slots, shape.bytes};
  for (std::size_t i = 0; i < std::size(mine); ++i) {
    if (words[i] == mine[i]) continue;
    return fail(i == 0 ? ErrorCode::version_mismatch : ErrorCode::invalid_argument,
                {.rank = rank, .stage = Stage::connect, .length = mine[i], .limit = words[i]});
  }
  return {};
}

/// At least one piece, so that every message has a place of its own.
[[nodiscard]] constexpr std::uint64_t ring_rounded(std::uint64_t size) noexcept {
  return size == 0 ? k_ring_align : (size + k_ring_align - 1) / k_ring_align * k_ring_align;
}
[[nodiscard]] constexpr std::uint64_t ring_data(const RingShape& shape) noexcept {
  return k_ring_words + ring_rounded(shape.slots * k_word);
}

/// Where one side stands.
struct RingPlace {
  std::uint64_t number = 0;  ///< of the next message
  std::uint64_t bytes = 0;   ///< behind the last one, counted from the beginning of time

  [[nodiscard]] std::uint64_t word_offset(const RingShape& shape) const noexcept {
    return k_ring_words + number % shape.slots * k_word;
  }
  /// Never 0, and another one than that of the message which had the slot before.
  [[nodiscard]] std::uint64_t word(const RingShape& shape, std::uint64_t size) const noexcept {
    return (number / shape.slots % 0xffffU + 1) << k_size_bits | size;
  }
  /// Where a message of that size begins: one that does not fit before the ring's end begins at its start.
  [[nodiscard]] std::uint64_t begin(const RingShape& shape, std::uint64_t size) const noexcept {
    const std::uint64_t left = shape.bytes - bytes % shape.bytes;
    return ring_rounded(size) > left ? bytes + left : bytes;
  }
  void pass(const RingShape& shape, std::uint64_t size) noexcept {
    bytes = begin(shape, size) + ring_rounded(size);
    number += 1;
  }
};

}  // namespace hixl::core
