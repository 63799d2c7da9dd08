// SPDX-License-Identifier: Apache-2.0
//
// RemoteTable: the regions of one peer that this rank knows. Written by the loop, read by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <hixl/result.hpp>
#include <hixl/types.hpp>

#include "memory/interval_table.hpp"

namespace hixl::memory {

/// A checked place in a peer's region.
struct RemoteView {
  RegionKey key{};
  Token token{};
  std::uint64_t offset = 0;     ///< inside the region
  std::byte* mapped = nullptr;  ///< that place, mapped here; null when no window link maps it
};

/// What stands of a peer's region: where it lies at the peer, and what it grants.
struct RemoteGrant {
  std::uint64_t base = 0;  ///< an address of the peer's process
  std::uint64_t length = 0;
  Token token{};
  Rights rights = Rights::none;
};

/// What is to be seen of a peer's region from inside. The token stays where it is.
struct RemoteLook {
  RegionKey key{};
  std::uint64_t incarnation = 0;
  std::uint64_t base = 0;
  std::uint64_t length = 0;
  Rights rights = Rights::none;
  std::uint32_t tag = 0;
  MemoryKind kind = MemoryKind::host;
  bool mapped = false;
  bool retired = false;
};

class RemoteTable {
 public:
  explicit RemoteTable(std::uint32_t regions_max);
  ~RemoteTable();

  /// Loop. Adds or replaces the region of that id; a replaced one loses its mapping. LIMIT_REACHED, INVALID_ARGUMENT
  /// (empty key or range), OUT_OF_RANGE (wraps), STALE (the same life of the rank has shown a later generation).
  [[nodiscard]] Result<void> add(const RemoteRegion& region);
  /// Loop. Where the region is mapped here (its first byte); null takes the mapping back. The caller sees to it that
  /// nobody uses the old mapping any more.
  void set_mapping(RegionKey key, std::byte* data) noexcept;
  /// Where the region is mapped here; null when it is not, or another generation stands. Thread-safe.
  [[nodiscard]] std::byte* mapping(RegionKey key) const noexcept;
  /// Nothing when the region is not known, or another generation stands. Thread-safe.
  [[nodiscard]] std::optional<RemoteGrant> grant(RegionKey key) const noexcept;
  /// Loop. The peer has retired it. For those who look inside; who uses it is told by the peer's board, or the peer.
  void set_retired(RegionKey key) noexcept;
  /// Thread-safe: what is known of the region with that id, and an id above all that are known.
  [[nodiscard]] std::optional<RemoteLook> look(std::uint32_t id) const noexcept;
  [[nodiscard]] std::uint32_t ids_end() const noexcept;
  /// Loop. The peer's life is over: forgets everything.
  void clear() noexcept;
  [[nodiscard]] std::size_t size() const noexcept;

  /// Thread-safe. NOT_EXCHANGED (nothing known of this rank), STALE (other generation or other incarnation),
  /// NOT_REGISTERED, OUT_OF_RANGE (overflow safe; with region and limit), ACCESS_DENIED. The rank is for the error's
  /// detail; the limit is how many bytes fit from the address on.
  [[nodiscard]] Result<RemoteView> resolve(const RemoteAddress& address, std::uint64_t length,
                                           Rights need) const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hixl::memory
