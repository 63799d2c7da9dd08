// SPDX-License-Identifier: Apache-2.0
//
// What a descriptor on the wire means for a program: a region of that life of that rank.
#pragma once

#include <hixl/types.hpp>

#include "base/ids.hpp"
#include "wire/messages.hpp"

namespace hixl::peer {

[[nodiscard]] inline RemoteRegion remote_region(const wire::RegionDescriptor& region, Rank rank,
                                                Incarnation incarnation) noexcept {
  return {.rank = rank,
          .incarnation = incarnation,
          .key = region.key,
          .token = region.token,
          .base = region.base,
          .length = region.length,
          .rights = region.rights,
          .tag = region.tag,
          .kind = region.kind};
}

}  // namespace hixl::peer
