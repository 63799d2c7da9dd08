// SPDX-License-Identifier: Apache-2.0
#include "wire/payload_sum.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace hixl::wire {

void PayloadSum::add(ConstBytes bytes) noexcept {
  HIXL_ASSERT(bytes.size() <= k_payload_bytes_max - bytes_);
  while (!bytes.empty()) {
    const std::size_t part = std::min(bytes.size(), k_mark_piece_bytes - bytes_ % k_mark_piece_bytes);
    crc_ = crc32c(bytes.first(part), crc_);
    bytes_ += static_cast<std::uint32_t>(part);
    if (bytes_ % k_mark_piece_bytes == 0) marks_[bytes_ / k_mark_piece_bytes - 1] = crc_;
    bytes = bytes.subspan(part);
  }
}

std::optional<PayloadPiece> PayloadSum::first_wrong(std::span<const std::uint32_t> marks,
                                                    std::uint32_t whole) const noexcept {
  HIXL_ASSERT(marks.size() == marks_of(k_flag_payload_crc, bytes_));
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (marks[i] != marks_[i]) return PayloadPiece{i * k_mark_piece_bytes, k_mark_piece_bytes};
  }
  if (whole == crc_) return std::nullopt;
  const std::size_t start = marks.size() * k_mark_piece_bytes;
  return PayloadPiece{start, bytes_ - start};
}

}  // namespace hixl::wire
