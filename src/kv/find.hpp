// SPDX-License-Identifier: Apache-2.0
//
// RemoteCache::State: what was learned of one registration of a cache of another rank.
#pragma once

#include <cstdint>
#include <vector>

#include <hixl/kv/cache.hpp>

#include "directory.hpp"

namespace hixl::kv {

struct RemoteCache::State {
  Rank rank = k_no_rank;
  RemoteAddress directory{};  // of the life that it was found in
  std::uint32_t slot = 0;
  std::uint64_t version = 0;
  CacheDesc desc{};
  std::vector<TensorAddress> tensors;
};

}  // namespace hixl::kv
