// SPDX-License-Identifier: Apache-2.0
//
// The oracle of all chaos tests: every 8 bytes of a block are a function of the transfer that wrote them and of their
// place in it. Bytes of another transfer, of another place, old ones and torn ones all show, and are named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace hixl::test {

/// The word of `transfer` at byte `offset`, a multiple of 8. Mixed (the finaliser of SplitMix64), so that any two words
/// of a test differ in about half of their bits.
constexpr std::uint64_t word_of(std::uint64_t transfer, std::uint64_t offset) noexcept {
  std::uint64_t mixed = transfer * 0x9e3779b97f4a7c15U ^ (offset / 8 + 1) * 0xd1342543de82ef95U;
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31U);
}

/// `bytes`: a multiple of 8.
inline void fill_block(std::byte* data, std::size_t bytes, std::uint64_t transfer) noexcept {
  for (std::size_t offset = 0; offset < bytes; offset += 8) {
    const std::uint64_t word = word_of(transfer, offset);
    std::memcpy(data + offset, &word, sizeof word);
  }
}

/// Where the first word stands that is not the transfer's.
[[nodiscard]] inline std::optional<std::size_t> wrong_at(const std::byte* data, std::size_t bytes,
                                                         std::uint64_t transfer) noexcept {
  for (std::size_t offset = 0; offset < bytes; offset += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + offset, sizeof word);
    if (word != word_of(transfer, offset)) return offset;
  }
  return std::nullopt;
}

/// Empty when the block is whole; else where it is not, for whoever reads the failure.
[[nodiscard]] inline std::string fault_of(const std::byte* data, std::size_t bytes, std::uint64_t transfer) {
  const auto offset = wrong_at(data, bytes, transfer);
  if (!offset) return {};
  std::size_t words = 0;
  for (std::size_t at = *offset; at < bytes; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + at, sizeof word);
    words += word != word_of(transfer, at) ? 1 : 0;
  }
  return "transfer " + std::to_string(transfer) + ": the first wrong word is at byte " + std::to_string(*offset) +
         " of " + std::to_string(bytes) + ", " + std::to_string(words) + " are wrong";
}

}  // namespace hixl::test
