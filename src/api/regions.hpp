// SPDX-License-Identifier: Apache-2.0
//
// Regions of a rank by their address, as the C interfaces name them. The runtime knows them; nothing is kept here.
#pragma once

#include <hixl/runtime.hpp>

#include "api/deadline.hpp"
#include "api/engine_table.hpp"
#include "api/told_ranges.hpp"

namespace hixl::api {

/// A region of the program's, in use.
[[nodiscard]] inline bool is_the_programs(const OwnRegion& own) noexcept {
  return own.state == RegionState::open && own.tag != k_told_tag;
}

/// The program's newest region that begins there. NOT_REGISTERED.
[[nodiscard]] inline Result<Region> region_at(Runtime& runtime, const void* data) {
  const auto regions = runtime.dump_regions();
  if (!regions) return fail(regions.error());
  for (const OwnRegion& own : regions->own) {
    if (is_the_programs(own) && own.region.data == data) return own.region;
  }
  return fail(ErrorCode::not_registered,
              {.stage = Stage::local_check, .address = reinterpret_cast<std::uint64_t>(data)});
}

/// The program's newest region that holds the address.
[[nodiscard]] inline const OwnRegion* region_around(const RegionDump& regions, std::uint64_t address) noexcept {
  for (const OwnRegion& own : regions.own) {
    const std::uint64_t base = own.region.address();
    if (is_the_programs(own) && address >= base && address - base < own.region.size) return &own;
  }
  return nullptr;
}

/// Ends a region of the program's, and what was told of it. Waits.
[[nodiscard]] inline Result<void> end_region(Engine& engine, const Region& region) {
  const Deadline deadline(engine.options.default_timeout);
  const auto ended = engine.runtime->deregister(region, deadline.left());
  // Also when that has failed: a region may have ended and yet be held.
  const auto followed = engine.told.follow({&region.key, 1}, deadline);
  return ended ? followed : ended;
}

}  // namespace hixl::api
