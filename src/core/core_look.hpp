// SPDX-License-Identifier: Apache-2.0
//
// What looking inside shares with other parts of the core.
#pragma once

#include <cstdint>

#include <hixl/memory.hpp>

#include "memory/region_table.hpp"

namespace hixl::core {

/// Slots looked at in one turn of the loop: well under a millisecond, however many requests there may be.
inline constexpr std::uint32_t k_slots_a_look = 4096;

/// A region of ours as the program sees it.
[[nodiscard]] Region region_of(const memory::RegionInfo& info);

}  // namespace hixl::core
