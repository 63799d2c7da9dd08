// SPDX-License-Identifier: Apache-2.0
#include "plan.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "pattern.hpp"

namespace pd {

namespace {

/// Of all Decodes together, besides a quarter of what the machine has free: enough for a full-size demo on a laptop.
constexpr double k_pool_bytes_max = 2.0 * 1024 * 1024 * 1024;
/// Bytes of KV that a run moves. Each is written, copied and read once; two small cores do that in well under a minute.
constexpr double k_run_bytes_max = 8.0 * 1024 * 1024 * 1024;
/// Length that a run aims at; a minute less start, drain and a machine that has other things to do.
constexpr double k_run_s = 35;
/// A pool holds so many times the blocks that are in use on average, since arrivals come in bursts.
constexpr double k_burst = 3;

/// Memory that may be taken without making anybody swap.
double available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  double kib = 0;
  for (std::string unit; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return k_pool_bytes_max;
}

double round_up_to_power_of_two(double value) { return std::exp2(std::ceil(std::log2(std::max(value, 1.0)))); }

}  // namespace

Plan make_plan(const Options& options, const Model& model, const std::vector<Request>& requests) {
  Plan plan{.prefill = options.prefill, .decode = options.decode, .layers = model.layers};
  double blocks = 0;
  double input_tokens = 0;
  double block_seconds = 0;  // how long blocks are held, in the trace's time
  for (const Request& request : requests) {
    const auto count = static_cast<double>(request.hash_ids.size());
    plan.request_blocks_max = std::max(plan.request_blocks_max, static_cast<std::uint32_t>(request.hash_ids.size()));
    blocks += count;
    input_tokens += request.input_tokens;
    block_seconds += count * (request.input_tokens / options.prefill_tokens_per_s +
                              request.output_tokens / options.decode_tokens_per_s);
  }
  // The trace's own length, or what the Prefills need at their speed if that is longer.
  const double span_s =
      std::max(requests.back().arrival_s, 1.1 * input_tokens / options.prefill_tokens_per_s / options.prefill);
  plan.speedup = options.speedup > 0 ? options.speedup
                                     : std::max(1.0, std::ceil(span_s / std::min(k_run_s, options.seconds_max * 0.6)));
  plan.token_prefill_s = 1 / options.prefill_tokens_per_s / plan.speedup;
  plan.token_decode_s = 1 / options.decode_tokens_per_s / plan.speedup;

  const double held_blocks = k_burst * block_seconds / std::max(span_s, 1.0) / options.decode;
  plan.pool_blocks = 2 * plan.request_blocks_max + static_cast<std::uint32_t>(std::ceil(held_blocks));
  const double block_bytes = static_cast<double>(model.block_layer_bytes()) * model.layers;
  const double pool_max = std::min(k_pool_bytes_max, available_bytes() / 4);
  const double chosen = round_up_to_power_of_two(
      std::max(block_bytes * plan.pool_blocks * options.decode / pool_max, block_bytes * blocks / k_run_bytes_max));
  plan.scale = options.scale > 0 ? options.scale : chosen;
  const double scaled =
      std::max(static_cast<double>(model.block_layer_bytes()) / plan.scale, double{k_block_layer_bytes_min});
  plan.block_layer_bytes = static_cast<std::uint64_t>(scaled) / k_block_layer_bytes_min * k_block_layer_bytes_min;
  plan.scale = static_cast<double>(model.block_layer_bytes()) / static_cast<double>(plan.block_layer_bytes);
  return plan;
}

Json plan_to_json(const Plan& plan) {
  return {{"prefill", plan.prefill},
          {"decode", plan.decode},
          {"layers", plan.layers},
          {"block_layer_bytes", plan.block_layer_bytes},
          {"pool_blocks", plan.pool_blocks},
          {"request_blocks_max", plan.request_blocks_max},
          {"token_prefill_s", plan.token_prefill_s},
          {"token_decode_s", plan.token_decode_s}};
}

Plan plan_from_json(const Json& json) {
  Plan plan;
  plan.prefill = json.at("prefill");
  plan.decode = json.at("decode");
  plan.layers = json.at("layers");
  plan.block_layer_bytes = json.at("block_layer_bytes");
  plan.pool_blocks = json.at("pool_blocks");
  plan.request_blocks_max = json.at("request_blocks_max");
  plan.token_prefill_s = json.at("token_prefill_s");
  plan.token_decode_s = json.at("token_decode_s");
  return plan;
}

}  // namespace pd
