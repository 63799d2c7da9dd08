// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cstdio>

#include <hixl/types.hpp>

namespace pd {

namespace {

std::string size_text(double bytes) {
  constexpr const char* k_units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(k_units); ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, k_units[unit]);
  return text;
}
std::string size_text(std::uint64_t bytes) { return size_text(static_cast<double>(bytes)); }

/// The full name of a link: an emulation is called one wherever it is printed.
std::string link_text(const std::string& kind) {
  for (std::size_t i = 0; i < hixl::k_link_kinds; ++i) {
    const auto link = static_cast<hixl::LinkKind>(i);
    if (kind == hixl::name(link)) return std::string(hixl::description(link));
  }
  return kind;
}

void row(const char* label, const std::string& value) { std::printf("  %-22s %s\n", label, value.c_str()); }

template <class... Args>
std::string format(const char* form, Args... args) {
  char text[160];
  std::snprintf(text, sizeof text, form, args...);
  return text;
}

Json percentiles(const std::vector<double>& values) {
  return {{"p50", percentile(values, 0.50)}, {"p99", percentile(values, 0.99)}};
}

constexpr std::array<const char*, 3> k_cut_times{"before", "cut", "after"};

Json to_json(const CutReport& cut) {
  Json links = Json::array();
  for (const LinkRow& link : cut.links) {
    Json row{{"kind", link.kind}, {"id", link.id}, {"failures", link.failures}};
    for (std::size_t i = 0; i < k_cut_times.size(); ++i) {
      row[k_cut_times[i]] = {{"bytes", link.bytes[i]}, {"states", link.states[i]}};
    }
    links.push_back(row);
  }
  return {{"from_s", cut.from_s}, {"to_s", cut.to_s}, {"links", links}};
}

/// "8 UP, 1 SUSPECT"
std::string states_text(const std::map<std::string, std::uint64_t>& states) {
  std::string text;
  for (const auto& [state, count] : states) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + state;
  return text;
}

void print_cut(const CutReport& cut) {
  row("second link cut", format("from %.1f s to %.1f s, at all pairs", cut.from_s, cut.to_s));
  row("  id", format("%-29s %-29s %s", "before", "while it was cut", "after"));
  for (const LinkRow& link : cut.links) {
    std::string text;
    for (std::size_t i = 0; i < k_cut_times.size(); ++i) {
      text += format("%-29s ", (size_text(link.bytes[i]) + ", " + states_text(link.states[i])).c_str());
    }
    row(("  " + link.kind + " " + std::to_string(link.id)).c_str(), text);
  }
}

}  // namespace

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

Json to_json(const Report& report, const Options& options, const Plan& plan) {
  Json links = Json::object();
  for (const auto& [kind, bytes] : report.link_bytes) links[kind] = {{"bytes", bytes}};
  return {{"ranks", plan.prefill + plan.decode},
          {"prefill", plan.prefill},
          {"decode", plan.decode},
          {"requests", report.requests},
          {"completed", report.completed},
          {"skipped", report.skipped},
          {"bytes", report.bytes},
          {"verified_bytes", report.verified_bytes},
          {"reused_bytes", report.reused_bytes},
          {"corrupt", report.corrupt},
          {"errors", report.errors},
          {"expected_errors", report.expected_errors},
          {"error_texts", report.error_texts},
          {"error_after_kill_ms_max", report.error_after_kill_ms_max},
          {"wall_s", report.wall_s},
          {"ttft_ms", percentiles(report.ttft_ms)},
          {"prefill_blocked_ms", percentiles(report.blocked_ms)},
          {"decode_ready_ms", percentiles(report.ready_ms)},
          {"transfer_gbps", report.transfer_gbps()},
          {"overlap", report.overlap()},
          {"intermediate_copies", report.copies},
          {"links", links},
          {"cut", report.cut ? to_json(*report.cut) : Json()},
          {"policy", options.policy},
          {"model", options.model},
          {"trace", options.trace.empty() ? Json() : Json(options.trace)},
          {"seed", options.seed},
          {"layers", plan.layers},
          {"block_layer_bytes", plan.block_layer_bytes},
          {"pool_blocks", plan.pool_blocks},
          {"scale", plan.scale},
          {"speedup", plan.speedup}};
}

void print_plan(const Options& options, const Model& model, const Plan& plan, const std::vector<Request>& requests) {
  std::uint64_t blocks = 0;
  for (const Request& request : requests) blocks += request.hash_ids.size();
  std::printf("%s: %s; %s of KV a token\n", options.model.c_str(), std::string(model.source).c_str(),
              size_text(std::uint64_t{model.token_layer_bytes} * model.layers).c_str());
  const std::string from = options.trace.empty()
                               ? format("made up from seed %llu", static_cast<unsigned long long>(options.seed))
                               : options.trace;
  std::printf("%zu requests over %.0f s (%s), %llu blocks of %u tokens\n", requests.size(), requests.back().arrival_s,
              from.c_str(), static_cast<unsigned long long>(blocks), k_block_tokens);
  std::printf("%u Prefill x %.0f tokens/s, %u Decode x %.0f tokens/s a sequence, %s\n", plan.prefill,
              options.prefill_tokens_per_s, plan.decode, options.decode_tokens_per_s, options.policy.c_str());
  std::printf("scale %.0f: a block of a layer is %s instead of %s; a Decode's pool is %u blocks, %s\n", plan.scale,
              size_text(plan.block_layer_bytes).c_str(), size_text(model.block_layer_bytes()).c_str(), plan.pool_blocks,
              size_text(plan.block_bytes() * plan.pool_blocks).c_str());
  std::printf("speedup %.4g: the clock of the trace and both speeds\n", plan.speedup);
  std::fflush(stdout);
}

void print_table(const Report& report, const Options& options, const Plan& plan) {
  std::printf("\n");
  row("ranks", format("%u (%u Prefill, %u Decode)", plan.prefill + plan.decode, plan.prefill, plan.decode));
  row("requests", format("%llu, %llu completed", static_cast<unsigned long long>(report.requests),
                         static_cast<unsigned long long>(report.completed)));
  if (report.skipped != 0)
    row("skipped", format("%llu, for want of time", static_cast<unsigned long long>(report.skipped)));
  row("KV sent", size_text(report.bytes));
  row("KV found right", size_text(report.verified_bytes));
  row("KV reused, not sent", size_text(report.reused_bytes));
  row("corrupt blocks", std::to_string(report.corrupt));
  row("errors", std::to_string(report.errors));
  if (options.kill) {
    row("  of the killed Decode",
        format("%llu, the last %.0f ms after its death", static_cast<unsigned long long>(report.expected_errors),
               report.error_after_kill_ms_max));
  }
  for (const auto& [text, count] : report.error_texts) row("", std::to_string(count) + " x " + text);
  row("wall time", format("%.1f s", report.wall_s));
  row("TTFT", format("p50 %.1f ms, p99 %.1f ms", percentile(report.ttft_ms, 0.5), percentile(report.ttft_ms, 0.99)));
  row("Prefill held after it",
      format("p50 %.2f ms, p99 %.2f ms", percentile(report.blocked_ms, 0.5), percentile(report.blocked_ms, 0.99)));
  row("Decode ready after it",
      format("p50 %.2f ms, p99 %.2f ms", percentile(report.ready_ms, 0.5), percentile(report.ready_ms, 0.99)));
  row("rate of a transfer", format("%.2f Gbit/s a Prefill", report.transfer_gbps()));
  row("hidden behind compute", format("%.1f %% of the transfer time", 100 * report.overlap()));
  for (const auto& [kind, bytes] : report.link_bytes) row("link", link_text(kind) + ", " + size_text(bytes));
  if (report.cut) print_cut(*report.cut);
}

}  // namespace pd
