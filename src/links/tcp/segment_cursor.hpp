// SPDX-License-Identifier: Apache-2.0
//
// SegmentCursor: how far a payload has come through the segments that it fills.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/assert.hpp"

namespace hixl::links::tcp {

struct SegmentCursor {
  std::size_t index = 0;
  std::uint32_t done = 0;  ///< bytes of segment `index`

  /// `Part` is any segment type with `bytes`. The caller has compared the sum of all with the payload.
  template <class Part>
  void advance(std::span<const Part> parts, std::size_t bytes) noexcept {
    while (bytes != 0) {
      HIXL_ASSERT(index < parts.size());
      const std::size_t step = std::min<std::size_t>(bytes, parts[index].bytes - done);
      bytes -= step;
      done += static_cast<std::uint32_t>(step);
      if (done == parts[index].bytes) *this = {index + 1, 0};
    }
  }
};

/// The place of the byte at `offset` of the payload of these segments, which must reach so far.
template <class Part>
[[nodiscard]] SegmentCursor find_piece(std::span<const Part> parts, std::size_t offset) noexcept {
  SegmentCursor at;
  at.advance(parts, offset);
  while (parts[at.index].bytes == 0) at = {at.index + 1, 0};
  return at;
}

/// Tickets of a stream: even ones are our writes, by their number; odd ones our answers to reads.
[[nodiscard]] constexpr std::uint64_t write_ticket(std::uint64_t link_seq) noexcept { return link_seq * 2; }
[[nodiscard]] constexpr std::uint64_t answer_ticket(std::uint64_t read_seq) noexcept { return read_seq * 2 + 1; }

}  // namespace hixl::links::tcp
