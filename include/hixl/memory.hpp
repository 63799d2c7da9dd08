// SPDX-License-Identifier: Apache-2.0
//
// Regions: registered memory of this rank. A Region is a plain value that names one life of one registration;
// the runtime owns what stands behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <hixl/result.hpp>
#include <hixl/types.hpp>

namespace hixl {

struct RegisterOptions {
  Rights rights = Rights::all;
  std::uint32_t tag = 0;  ///< told to peers beside the region, to find one among several
};

struct AllocateOptions {
  Rights rights = Rights::all;
  std::uint32_t tag = 0;
  bool zero_on_release = false;
};

/// A registration of this rank. Copyable value; stays comparable after deregister, but is then STALE.
struct Region {
  RegionKey key{};
  std::byte* data = nullptr;
  std::size_t size = 0;
  bool window = false;  ///< allocated by the runtime: every link can use it, peers on this host map it

  [[nodiscard]] std::uint64_t address() const noexcept { return reinterpret_cast<std::uint64_t>(data); }
};

/// What exchange() learned of one rank.
struct PeerAddresses {
  Rank rank = k_no_rank;
  Result<void> result{};
  std::vector<RemoteRegion> regions;  ///< in the order in which that rank published them
};

}  // namespace hixl
