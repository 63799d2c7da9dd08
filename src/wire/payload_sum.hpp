// SPDX-License-Identifier: Apache-2.0
//
// PayloadSum: the checksum of a payload, made in one pass over bytes that may come in pieces of any size. At every
// 64 KiB it leaves a mark: the checksum of all bytes so far. Sender and receiver make the same marks, and the first
// that differ say where the bytes went wrong. Pure, no I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.hpp"
#include "wire/frame.hpp"

namespace hixl::wire {

/// One mark each. Fine enough to tell a bad page or a bad packet train, and 63 marks of the largest payload take 252
/// bytes of its frame.
inline constexpr std::size_t k_mark_piece_bytes = 64U << 10U;
inline constexpr std::size_t k_marks_max = k_payload_bytes_max / k_mark_piece_bytes - 1;
inline constexpr std::size_t k_mark_bytes = sizeof(std::uint32_t);

/// Marks behind the body of a frame: with k_flag_payload_crc one for each full piece but the last piece, whose end is
/// FrameHeader::payload_crc. They are part of the body for body_bytes and body_crc.
[[nodiscard]] constexpr std::size_t marks_of(std::uint16_t flags, std::size_t payload_bytes) noexcept {
  if ((flags & k_flag_payload_crc) == 0 || payload_bytes == 0) return 0;
  return (payload_bytes - 1) / k_mark_piece_bytes;
}

/// A run of bytes of one payload.
struct PayloadPiece {
  std::size_t offset = 0;  ///< inside the payload
  std::size_t bytes = 0;
};

class PayloadSum {
 public:
  using Marks = std::array<std::uint32_t, k_marks_max + 1>;

  void clear() noexcept { bytes_ = crc_ = 0; }
  /// The next bytes in order; at most k_payload_bytes_max in all.
  void add(ConstBytes bytes) noexcept;
  /// Of all bytes so far.
  [[nodiscard]] std::uint32_t whole() const noexcept { return crc_; }
  /// The first marks_of() of them count; so many bytes must have come.
  [[nodiscard]] const Marks& marks() const noexcept { return marks_; }
  /// The first piece that is not what the sender summed up; nothing when the payload, which must be complete, is whole.
  [[nodiscard]] std::optional<PayloadPiece> first_wrong(std::span<const std::uint32_t> marks,
                                                        std::uint32_t whole) const noexcept;

 private:
  Marks marks_;  // what is read was written first: an initial value would cost each frame 256 bytes
  std::uint32_t bytes_ = 0;
  std::uint32_t crc_ = 0;
};

}  // namespace hixl::wire
