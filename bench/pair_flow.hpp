// SPDX-License-Identifier: Apache-2.0
//
// Questions of hixl_pair_bench that other libraries and bare sockets are asked in the same words by bench/compare. Each
// answer has `question`, `us` (median), `p99_us`, `gbps` of the median, `cpu_s_gb` of both processes together, and
// `verified`: rank 1 has compared every byte. A flight also tells `held_us`, for how long its posts hold the caller.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "pair.hpp"

namespace hixl::bench {

struct Flow {
  std::string text;  ///< as it was asked
  std::string what;
  std::uint64_t size = 0;   ///< bytes of a put
  std::uint64_t count = 1;  ///< puts at a time
  [[nodiscard]] bool known() const;
  /// What both sides need room for.
  [[nodiscard]] std::uint64_t room() const;
};

/// put: one put_sync after the other. flight: `count` puts are posted, then all are waited for. batch: the same as one
/// batch of blocks that do not touch each other. streams: `count` flows, each with one put under way.
[[nodiscard]] nlohmann::json answer(Pair& pair, const Flow& flow);

}  // namespace hixl::bench
