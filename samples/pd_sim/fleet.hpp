// SPDX-License-Identifier: Apache-2.0
//
// A fleet in virtual time: hundreds of Prefills, thousands of Decodes, and links of a given speed between them. No byte
// is moved and the library is not used: what is asked is how a policy that spreads requests behaves where no machine at
// hand is large enough. What a node takes for a token is assumed, so results mean something beside one another only.
//
// A request waits for the Prefill with the least to compute; is computed; its KV is pushed layer by layer, while the
// next ones are computed, to the Decode that the policy chose when the computation began, as soon as there is room for
// it; and its tokens are made there, all requests of a Decode together, one token of each in a step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model.hpp"
#include "trace.hpp"

namespace fleet {

/// What carries the KV. All flows into a Decode share its bandwidth equally; a Prefill computes, and so sends, one
/// request at a time. The figures of k_links are those that the field's transfer articles state for their cards.
struct LinkProfile {
  std::string_view name;
  double bytes_per_s = 0;
  double latency_s = 0;
};
inline constexpr LinkProfile k_links[] = {
    {"hccs", 119e9, 0.5e-6},
    {"pcie", 32e9, 1e-6},
    {"roce", 22e9, 3.5e-6},
};

struct Shape {
  std::uint32_t prefills = 1024;
  std::uint32_t decodes = 4096;
  pd::Model model = pd::k_models[1];
  LinkProfile link = k_links[0];
  double prefill_tokens_per_s = 8'000;  ///< one Prefill's
  double step_s = 0.015;                ///< a Decode's step without any KV to read: reading the weights
  double memory_bytes_per_s = 1.2e12;   ///< a Decode reads the KV of all its requests in each step
  double decode_bytes = 64e9;           ///< room for KV
  double slow_share = 0.1;              ///< of the Decodes …
  double slow_factor = 3;               ///< … whose steps take so many times as long
  /// Loads are known as they were at the last multiple of this; 0: as they are.
  double stale_s = 0;
  std::uint64_t seed = 1;
};

struct Outcome {
  std::uint64_t requests = 0;
  std::uint64_t tokens = 0;           ///< made, all of them
  double seconds = 0;                 ///< from the first arrival to the last, in which rates are taken
  double tokens_per_s = 0;            ///< made in that time
  std::vector<double> first_token_s;  ///< one a request, sorted: from its arrival to its first token
  std::vector<double> room_s;         ///< the same of what it waited for room at its Decode
  std::vector<double> token_s;        ///< the same of the time a token after the first
  double busy = 0;                    ///< share of the Decodes' time, in the same, in which they made tokens
  std::uint64_t events = 0;
};

/// What is wrong with such a fleet for these requests; empty: nothing.
[[nodiscard]] std::string problem_of(const Shape& shape, const std::vector<pd::Request>& requests);
/// Requests in order of arrival, not empty, without a problem; a policy of pd::k_policies. The same every time.
[[nodiscard]] Outcome run(const Shape& shape, const std::vector<pd::Request>& requests, std::string_view policy);

/// Value below which `share` (0 … 1) of the sorted ones are.
[[nodiscard]] double quantile(const std::vector<double>& sorted, double share);

}  // namespace fleet
