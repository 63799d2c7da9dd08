// SPDX-License-Identifier: Apache-2.0
//
// Directory: what a rank tells about its caches, as bytes in a region of its own that peers read by get. Where things
// lie in it follows from a few counts in its header; records carry a checksum, since a get may meet a change half done.
// Pure: what comes from a peer is decoded into a value or refused, whatever it is.
//
//   header | bell | a word for each rank | records of caches | tensors of each | gates | releases | arrivals | scratch
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <hixl/kv/cache.hpp>
#include <hixl/types.hpp>

namespace hixl::kv {

/// Layers whose arrivals one lease can tell: twice those of the deepest models that are served today (126).
inline constexpr std::uint32_t k_arrival_layers = 256;
inline constexpr std::size_t k_header_bytes = 64;
inline constexpr std::size_t k_record_bytes = 72;
inline constexpr std::size_t k_tensor_bytes = 16;
inline constexpr std::size_t k_word_bytes = 8;

struct DirectoryCounts {
  std::uint32_t ranks = 0;
  std::uint32_t caches = 0;
  std::uint32_t tensors = 0;
  std::uint32_t links = 0;
  std::uint32_t leases = 0;
  std::uint32_t arrivals = 0;
  friend bool operator==(const DirectoryCounts&, const DirectoryCounts&) = default;
};

/// Offsets into the region, in bytes.
class Directory {
 public:
  Directory() = default;
  explicit Directory(const DirectoryCounts& counts) noexcept;
  [[nodiscard]] const DirectoryCounts& counts() const noexcept { return counts_; }
  [[nodiscard]] std::uint64_t bell() const noexcept { return k_header_bytes; }
  [[nodiscard]] std::uint64_t link_word(Rank rank) const noexcept {
    return words_ + std::uint64_t{rank} * k_word_bytes;
  }
  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }
  [[nodiscard]] std::uint64_t record(std::uint32_t slot) const noexcept {
    return records_ + std::uint64_t{slot} * k_record_bytes;
  }
  [[nodiscard]] std::uint64_t tensors(std::uint32_t slot) const noexcept {
    return tensors_ + std::uint64_t{slot} * counts_.tensors * k_tensor_bytes;
  }
  /// Gates of one link: its caches' first, then its leases'.
  [[nodiscard]] std::uint32_t gates_a_link() const noexcept { return counts_.caches + counts_.leases; }
  [[nodiscard]] std::uint64_t gate(std::uint32_t link, std::uint32_t gate) const noexcept {
    return gates_ + (std::uint64_t{link} * gates_a_link() + gate) * k_word_bytes;
  }
  [[nodiscard]] std::uint64_t release(std::uint32_t link, std::uint32_t lease) const noexcept {
    return releases_ + (std::uint64_t{link} * counts_.leases + lease) * k_word_bytes;
  }
  [[nodiscard]] std::uint64_t arrival(std::uint32_t place, std::uint32_t layer) const noexcept {
    return arrivals_ + (std::uint64_t{place} * k_arrival_layers + layer) * k_word_bytes;
  }
  /// Room for one record with its tensors.
  [[nodiscard]] std::uint64_t scratch() const noexcept { return scratch_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  DirectoryCounts counts_{};
  std::uint64_t words_ = 0;
  std::uint64_t records_ = 0;
  std::uint64_t tensors_ = 0;
  std::uint64_t gates_ = 0;
  std::uint64_t releases_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint64_t scratch_ = 0;
  std::uint64_t bytes_ = 0;
};

struct TensorAddress {
  std::uint64_t address = 0;
  RegionKey region{};
  friend bool operator==(const TensorAddress&, const TensorAddress&) = default;
};

/// What stands in a slot.
struct CacheRecord {
  std::uint64_t version = 0;  ///< 0: nothing
  CacheDesc desc{};
  std::uint64_t tensors_sum = 0;  ///< checksum of the encoded tensors
};

using Bytes = std::vector<std::byte>;
[[nodiscard]] Bytes encode(const DirectoryCounts& counts);
/// Nothing: not a directory of this version, or counts that no DataDist has.
[[nodiscard]] std::optional<DirectoryCounts> decode_counts(std::span<const std::byte> bytes);
[[nodiscard]] Bytes encode(const CacheRecord& record);
enum class Decoded : std::uint8_t { valid, empty, torn };
/// torn: a change was under way, or this is no record.
[[nodiscard]] Decoded decode(std::span<const std::byte> bytes, CacheRecord& record);
[[nodiscard]] Bytes encode(std::span<const TensorAddress> tensors);
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;
[[nodiscard]] std::vector<TensorAddress> decode_tensors(std::span<const std::byte> bytes);

// ---- lives ----
/// A life of a rank's DataDist is that of its directory: a process may make one after the other.
[[nodiscard]] constexpr bool same_life(const RemoteAddress& a, const RemoteAddress& b) noexcept {
  return a.rank == b.rank && a.incarnation == b.incarnation && a.region == b.region;
}
/// A name for the life of that directory, short enough for a LinkWord: two have the same in one of 2^48 cases.
[[nodiscard]] std::uint64_t life_of(const RemoteAddress& directory) noexcept;

// ---- words by which two ranks know of each other: who has linked, and which link the other has there ----
enum class LinkSays : std::uint8_t { nothing = 0, linked = 1, unlinked = 2 };
struct LinkWord {
  LinkSays says = LinkSays::nothing;
  std::uint32_t link = 0;  ///< number of the link at who says it
  std::uint64_t life = 0;  ///< of who says it: life_of()
};
inline constexpr std::uint64_t k_life_mask = (std::uint64_t{1} << 48U) - 1;
[[nodiscard]] constexpr std::uint64_t pack(const LinkWord& word) noexcept {
  return static_cast<std::uint64_t>(word.says) << 62U | std::uint64_t{word.link & 0x3fffU} << 48U |
         (word.life & k_life_mask);
}
[[nodiscard]] constexpr LinkWord unpack_link_word(std::uint64_t word) noexcept {
  const auto says = static_cast<std::uint8_t>(word >> 62U);
  return {.says = says > 2 ? LinkSays::nothing : static_cast<LinkSays>(says),
          .link = static_cast<std::uint32_t>(word >> 48U) & 0x3fffU,
          .life = word & k_life_mask};
}

}  // namespace hixl::kv
