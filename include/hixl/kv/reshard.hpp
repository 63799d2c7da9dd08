// SPDX-License-Identifier: Apache-2.0
//
// Re-sharding: who sends which heads to whom when the two sides cut the heads of a model into different numbers of
// ranks. Only arithmetic; the moving is done by push and pull, whose slices speak of the model's heads.
#pragma once

#include <cstdint>
#include <vector>

#include <hixl/kv/cache.hpp>
#include <hixl/result.hpp>

namespace hixl::kv {

/// The heads that rank `place` of `ranks` holds. `ranks` must divide `heads_total` (each has as many), or be a multiple
/// of it (each head is on as many ranks as it takes: grouped queries, and MLA with its one). Anything else is uneven,
/// and INVALID_ARGUMENT: nobody says how an engine cuts it. Who knows gives the ranges itself.
[[nodiscard]] Result<Range> head_shard(std::uint32_t heads_total, std::uint32_t ranks, std::uint32_t place);

/// `heads` go from one rank of the source side to one of the target side.
struct HeadMove {
  std::uint32_t source = 0;  ///< place among the source's ranks
  std::uint32_t target = 0;  ///< place among the target's
  Range heads{};
  friend bool operator==(const HeadMove&, const HeadMove&) = default;
};

/// Every head of every target rank exactly once. Where several source ranks hold it, targets are spread over them
/// evenly. By target, then by head.
[[nodiscard]] Result<std::vector<HeadMove>> reshard(std::uint32_t heads_total, std::uint32_t source_ranks,
                                                    std::uint32_t target_ranks);

}  // namespace hixl::kv
