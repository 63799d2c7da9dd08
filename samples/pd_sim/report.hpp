// SPDX-License-Identifier: Apache-2.0
//
// What a run came to: collected while it goes, then a table for people and a JSON file for programs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "line_pipe.hpp"
#include "plan.hpp"

namespace pd {

/// A link of the pool of every Prefill and Decode, all pairs together. Before, while and after the second was cut.
struct LinkRow {
  std::string kind;
  std::uint32_t id = 0;                                          ///< as LinkInfo::id
  std::array<std::uint64_t, 3> bytes{};                          ///< put in that time
  std::array<std::map<std::string, std::uint64_t>, 3> states{};  ///< at its end: how many links were in which
  std::uint64_t failures = 0;
};

struct CutReport {
  double from_s = 0;
  double to_s = 0;
  std::vector<LinkRow> links;
};

struct Report {
  std::uint64_t requests = 0;  ///< started
  std::uint64_t completed = 0;
  std::uint64_t skipped = 0;          ///< of the trace, for want of time
  std::uint64_t bytes = 0;            ///< put, as the Prefills count them
  std::uint64_t verified_bytes = 0;   ///< of these: found right, as the Decodes count them
  std::uint64_t reused_bytes = 0;     ///< not sent, because the Decode held them
  std::uint64_t corrupt = 0;          ///< blocks of a layer
  std::uint64_t errors = 0;           ///< requests that ended with an error
  std::uint64_t expected_errors = 0;  ///< of these: their Decode was killed on purpose
  std::uint64_t copies = 0;           ///< intermediate copies of payload
  double wall_s = 0;
  double busy_ms = 0;     ///< with transfers under way, all requests
  double exposed_ms = 0;  ///< of that: after the last layer had been computed
  std::vector<double> ttft_ms;
  std::vector<double> blocked_ms;  ///< how long a Prefill was held after its compute
  std::vector<double> ready_ms;    ///< from the end of the compute to the last byte checked at the Decode
  double error_after_kill_ms_max = 0;
  std::map<std::string, std::uint64_t> link_bytes;
  std::map<std::string, std::uint64_t> error_texts;
  std::optional<CutReport> cut;

  /// Every byte that was sent was found right, and nothing failed that was not meant to.
  [[nodiscard]] bool good() const { return corrupt == 0 && errors == expected_errors; }
  [[nodiscard]] double overlap() const { return busy_ms > 0 ? 1 - exposed_ms / busy_ms : 0; }
  /// Gigabits a second of one Prefill while it has transfers under way.
  [[nodiscard]] double transfer_gbps() const {
    return busy_ms > 0 ? static_cast<double>(bytes) * 8 / 1e6 / busy_ms : 0;
  }
};

[[nodiscard]] double percentile(std::vector<double> values, double share);
[[nodiscard]] Json to_json(const Report& report, const Options& options, const Plan& plan);
void print_table(const Report& report, const Options& options, const Plan& plan);
void print_plan(const Options& options, const Model& model, const Plan& plan, const std::vector<Request>& requests);

}  // namespace pd
