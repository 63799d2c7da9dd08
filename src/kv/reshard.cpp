// SPDX-License-Identifier: Apache-2.0
#include <hixl/kv/reshard.hpp>

#include <algorithm>

namespace hixl::kv {

namespace {

Result<void> check_cut(std::uint32_t heads_total, std::uint32_t ranks) {
  if (heads_total < 1 || heads_total > k_heads_max) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = heads_total, .limit = k_heads_max});
  }
  if (ranks < 1 || ranks > k_heads_max || (heads_total % ranks != 0 && ranks % heads_total != 0)) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = ranks, .limit = heads_total});
  }
  return {};
}

/// Of a cut that is even.
Range shard_of(std::uint32_t heads_total, std::uint32_t ranks, std::uint32_t place) {
  if (ranks <= heads_total) {
    const std::uint32_t each = heads_total / ranks;
    return {place * each, (place + 1) * each};
  }
  const std::uint32_t head = place / (ranks / heads_total);
  return {head, head + 1};
}

}  // namespace

Result<Range> head_shard(std::uint32_t heads_total, std::uint32_t ranks, std::uint32_t place) {
  if (const auto even = check_cut(heads_total, ranks); !even) return fail(even.error());
  if (place >= ranks) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = place, .limit = ranks - 1});
  }
  return shard_of(heads_total, ranks, place);
}

Result<std::vector<HeadMove>> reshard(std::uint32_t heads_total, std::uint32_t source_ranks,
                                      std::uint32_t target_ranks) {
  for (const std::uint32_t ranks : {source_ranks, target_ranks}) {
    if (const auto even = check_cut(heads_total, ranks); !even) return fail(even.error());
  }
  // Where a head lies on several sources, and on several targets, both are spread evenly over each other.
  const std::uint32_t copies = source_ranks > heads_total ? source_ranks / heads_total : 1;
  const std::uint32_t sharers = target_ranks > heads_total ? target_ranks / heads_total : 1;
  const std::uint32_t each = source_ranks > heads_total ? 1 : heads_total / source_ranks;
  std::vector<HeadMove> moves;
  for (std::uint32_t target = 0; target < target_ranks; ++target) {
    const Range wanted = shard_of(heads_total, target_ranks, target);
    // A target with several heads could ask any of their holders: in turn, so that no copy is idle.
    const std::uint32_t share = target % sharers;
    for (std::uint32_t head = wanted.first; head < wanted.last;) {
      const std::uint32_t holder = head / each;  // among the parts, each of which has `copies` ranks
      const std::uint32_t copy =
          static_cast<std::uint32_t>(std::uint64_t{share} * copies / sharers + (sharers == 1 ? target % copies : 0));
      const std::uint32_t last = std::min(wanted.last, (holder + 1) * each);
      moves.push_back({.source = holder * copies + copy, .target = target, .heads = {head, last}});
      head = last;
    }
  }
  return moves;
}

}  // namespace hixl::kv
