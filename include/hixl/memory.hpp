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

/// Asks for regions of whatever tag (Offers::ask()).
inline constexpr std::uint32_t k_any_tag = 0xffffffffU;

struct RegisterOptions {
  Rights rights = Rights::all;
  std::uint32_t tag = 0;  ///< told to peers beside the region, to find one among several
};

enum class HugePages : std::uint8_t {
  none,
  prefer,   ///< huge pages if the system has enough reserved, else ordinary ones (Region::page_bytes tells)
  require,  ///< HUGE_PAGES_MISSING otherwise
};

inline constexpr int k_no_numa_node = -1;  ///< wherever the kernel puts it
inline constexpr int k_numa_auto = -2;     ///< the node of the calling thread if it has room, else another

struct AllocateOptions {
  Rights rights = Rights::all;
  std::uint32_t tag = 0;
  /// When deregister() has succeeded, whoever still maps the pages reads zeros.
  bool zero_on_release = false;
  /// hbm: emulated, from the RuntimeOptions::hbm_bytes of this rank (0: UNSUPPORTED).
  MemoryKind kind = MemoryKind::host;
  /// hbm: what does not fit goes to host memory (Region::spilled_bytes) instead of NO_MEMORY.
  bool allow_paging_to_ddr = false;
  HugePages huge_pages = HugePages::none;  ///< host memory only
  /// A node of this machine, k_no_numa_node or k_numa_auto; host memory only. The pages are on that node, or it is an
  /// error.
  int numa_node = k_no_numa_node;
};

/// A registration of this rank. Copyable value; stays comparable after deregister, but is then STALE.
struct Region {
  RegionKey key{};
  std::byte* data = nullptr;
  std::size_t size = 0;
  bool window = false;  ///< allocated by the runtime: every link can use it, peers on this host map it
  MemoryKind kind = MemoryKind::host;
  std::uint64_t spilled_bytes = 0;  ///< of an hbm region: how many of its bytes are in host memory
  std::size_t page_bytes = 0;       ///< of allocated memory: size of its pages; 0: registered, not known
  int numa_node = k_no_numa_node;   ///< of allocated memory, if a node was asked for: where it is

  [[nodiscard]] std::uint64_t address() const noexcept { return reinterpret_cast<std::uint64_t>(data); }
};

/// What exchange() learned of one rank.
struct PeerAddresses {
  Rank rank = k_no_rank;
  Result<void> result{};
  /// In the order in which that rank published them, at most regions_max of this rank. Where `result` names one that
  /// was not accepted here (LIMIT_REACHED), it is NOT_REGISTERED, and all others can be used.
  std::vector<RemoteRegion> regions;
};

}  // namespace hixl
