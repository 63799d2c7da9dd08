// SPDX-License-Identifier: Apache-2.0
//
// Words that every header uses: link kinds, rights, region keys, global addresses, timeouts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include <hixl/error.hpp>

namespace hixl {

/// How bytes travel. The names are the field's; `hccs` here is an emulation over shared memory, and every
/// text that the library prints says so.
enum class LinkKind : std::uint8_t { hccs = 0, pcie = 1, roce = 2, ub = 3, tcp = 4, sim = 5 };
inline constexpr std::size_t k_link_kinds = 6;
[[nodiscard]] std::string_view name(LinkKind kind) noexcept;         ///< "hccs"
[[nodiscard]] std::string_view description(LinkKind kind) noexcept;  ///< "hccs (emulated: shared memory)"

/// Kinds that may be used for something. Empty stands for all.
class LinkSet {
 public:
  constexpr LinkSet() noexcept = default;
  constexpr LinkSet(std::initializer_list<LinkKind> kinds) noexcept {
    for (const LinkKind kind : kinds) add(kind);
  }
  constexpr void add(LinkKind kind) noexcept { bits_ |= bit(kind); }
  [[nodiscard]] constexpr bool empty() const noexcept { return bits_ == 0; }
  [[nodiscard]] constexpr bool allows(LinkKind kind) const noexcept { return empty() || (bits_ & bit(kind)) != 0; }
  /// Bit i is the kind of number i.
  [[nodiscard]] constexpr std::uint8_t bits() const noexcept { return bits_; }
  friend constexpr bool operator==(LinkSet, LinkSet) noexcept = default;

 private:
  [[nodiscard]] static constexpr std::uint8_t bit(LinkKind kind) noexcept {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(kind));
  }
  std::uint8_t bits_ = 0;
};

/// What a region's bytes live on.
enum class MemoryKind : std::uint8_t {
  host = 0,  ///< ordinary memory
  hbm = 1,   ///< memory of a device: has an address, but the CPU may not use it; Runtime::copy_in() and copy_out() do
};
[[nodiscard]] std::string_view name(MemoryKind kind) noexcept;  ///< "hbm"

/// What a region lets others do. Combine with |.
enum class Rights : std::uint8_t { none = 0, read = 1, write = 2, atomic = 4, all = 7 };
[[nodiscard]] constexpr Rights operator|(Rights a, Rights b) noexcept {
  return static_cast<Rights>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
[[nodiscard]] constexpr bool includes(Rights have, Rights need) noexcept {
  return (static_cast<std::uint8_t>(have) & static_cast<std::uint8_t>(need)) == static_cast<std::uint8_t>(need);
}

/// Names one life of one region of a rank. Generations start at 1; a key with generation 0 names nothing.
struct RegionKey {
  std::uint32_t id = 0;
  std::uint32_t generation = 0;
  [[nodiscard]] bool valid() const noexcept { return generation != 0; }
  friend bool operator==(const RegionKey&, const RegionKey&) = default;
};

/// A place in another rank's memory. With an empty key the address alone decides: the newest known region of
/// that rank which holds the whole range.
struct RemoteAddress {
  Rank rank = k_no_rank;
  std::uint64_t address = 0;  ///< virtual address at that rank
  RegionKey region{};
  std::uint64_t incarnation = 0;  ///< the life of the rank; 0 means whichever is current
};

/// A capability to use a region. Opaque; travels with RemoteRegion.
struct Token {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const Token&, const Token&) = default;
};

/// A region of another rank, as that rank published it. A plain value.
struct RemoteRegion {
  Rank rank = k_no_rank;
  std::uint64_t incarnation = 0;
  RegionKey key{};
  Token token{};
  std::uint64_t base = 0;
  std::uint64_t length = 0;
  Rights rights = Rights::none;
  std::uint32_t tag = 0;  ///< the number its owner gave it, to find one among several
  MemoryKind kind = MemoryKind::host;

  [[nodiscard]] RemoteAddress at(std::uint64_t offset) const noexcept {
    return {rank, base + offset, key, incarnation};
  }
};

enum class TransferVerb : std::uint8_t { put, get };
enum class SignalOp : std::uint8_t { set, add };
enum class Compare : std::uint8_t { equal, not_equal, greater_equal };

/// Time allowed for one call, counted from the call, queueing included. 0 means: do not wait.
using Timeout = std::chrono::nanoseconds;
/// Stands for RuntimeOptions::default_timeout.
inline constexpr Timeout k_default_timeout{-1};

}  // namespace hixl
