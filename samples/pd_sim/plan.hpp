// SPDX-License-Identifier: Apache-2.0
//
// The plan of a run: scale and speed at which it fits this machine and a minute. Made by the launcher, told to every
// rank.
#pragma once

#include <cstdint>
#include <vector>

#include "line_pipe.hpp"
#include "model.hpp"
#include "options.hpp"
#include "trace.hpp"

namespace pd {

struct Plan {
  std::uint32_t prefill = 1;
  std::uint32_t decode = 1;
  std::uint32_t layers = 1;
  std::uint64_t block_layer_bytes = 0;  ///< after scaling
  std::uint32_t pool_blocks = 0;        ///< of one Decode
  std::uint32_t request_blocks_max = 0;
  double scale = 1;
  double speedup = 1;
  double token_prefill_s = 0;  ///< real seconds of this run, speedup included
  double token_decode_s = 0;

  [[nodiscard]] std::uint64_t block_bytes() const { return block_layer_bytes * layers; }
};

[[nodiscard]] Plan make_plan(const Options& options, const Model& model, const std::vector<Request>& requests);

[[nodiscard]] Json plan_to_json(const Plan& plan);
[[nodiscard]] Plan plan_from_json(const Json& json);

}  // namespace pd
