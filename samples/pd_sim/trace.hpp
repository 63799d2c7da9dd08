// SPDX-License-Identifier: Apache-2.0
//
// Requests: from a trace in the Mooncake JSONL format, or made up from a seed in the same shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hixl/result.hpp>

namespace pd {

/// Blocks of one request: what fits one control message; 256 000 tokens.
inline constexpr std::size_t k_request_blocks_max = 500;

struct Request {
  double arrival_s = 0;  ///< in the trace's own time
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::vector<std::uint64_t> hash_ids;  ///< one a block of 512 tokens; equal ids are equal prefixes
};

/// One line a request: {"timestamp": ms, "input_length", "output_length", "hash_ids"}. At most `limit` (0: all). A line
/// that is not one is told in `problem`.
struct TraceFile {
  std::vector<Request> requests;
  std::string problem;
};
[[nodiscard]] TraceFile load_trace(const std::string& path, std::size_t limit);

struct GeneratorOptions {
  std::uint64_t seed = 1;
  std::size_t requests = 400;
  double arrivals_per_s = 3;
};
/// Conversations that come back with their former turns as a prefix, under one system prompt.
[[nodiscard]] std::vector<Request> generate_trace(const GeneratorOptions& options);

}  // namespace pd
