// SPDX-License-Identifier: Apache-2.0
//
// Attached: how the attaching of one region of the peer went, to be told by a link.
#pragma once

#include <hixl/result.hpp>
#include <hixl/types.hpp>

namespace hixl::links {

struct Attached {
  RegionKey key{};
  Result<void> result{};
};

}  // namespace hixl::links
