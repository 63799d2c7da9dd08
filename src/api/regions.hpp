// SPDX-License-Identifier: Apache-2.0
//
// Regions of a rank by their address, as the C interfaces name them. The runtime knows them; nothing is kept here.
#pragma once

#include <hixl/runtime.hpp>

namespace hixl::api {

/// The newest open region that begins there. NOT_REGISTERED.
[[nodiscard]] inline Result<Region> region_at(Runtime& runtime, const void* data) {
  const auto regions = runtime.dump_regions();
  if (!regions) return fail(regions.error());
  for (const OwnRegion& own : regions->own) {
    if (own.state == RegionState::open && own.region.data == data) return own.region;
  }
  return fail(ErrorCode::not_registered,
              {.stage = Stage::local_check, .address = reinterpret_cast<std::uint64_t>(data)});
}

/// The newest open region that holds the address.
[[nodiscard]] inline const OwnRegion* region_around(const RegionDump& regions, std::uint64_t address) noexcept {
  for (const OwnRegion& own : regions.own) {
    const std::uint64_t base = own.region.address();
    if (own.state == RegionState::open && address >= base && address - base < own.region.size) return &own;
  }
  return nullptr;
}

}  // namespace hixl::api
