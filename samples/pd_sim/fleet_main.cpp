// SPDX-License-Identifier: Apache-2.0
//
// hixl_fleet: which Decode should get the next request, asked of a fleet that no machine at hand could run.
#include <cstdio>
#include <exception>
#include <fstream>
#include <new>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checks.hpp"
#include "fleet.hpp"
#include "policy.hpp"

namespace {

constexpr int k_exit_usage = 2;
constexpr std::uint64_t k_trace_requests_max = 1'000'000;
/// Of all copies together; each takes about 200 bytes while a fleet runs.
constexpr std::uint64_t k_requests_max = 50'000'000;
constexpr std::uint64_t k_nodes_max = 1U << 20U;
// Beyond every machine that is thought of, and sums of such times stay exact enough.
constexpr double k_least = 1e-3;
constexpr double k_most = 1e9;

struct Options {
  fleet::Shape shape;
  std::string trace, json, model = "llama3-70b";
  std::vector<std::string> links{"hccs", "pcie", "roce"};
  std::vector<std::string> policies{"round_robin", "least_loaded", "two_choices"};
  std::size_t requests = 0;
  std::uint32_t copies = 100;
  double step_ms = 15;
  double memory_gb_per_s = 1200;
  double stale_ms = 0;
  double decode_gb = 64;
};

/// Each copy is the same trace from another moment on, and goes around at its end: as many requests a second more.
std::vector<pd::Request> spread(const std::vector<pd::Request>& trace, std::uint32_t copies) {
  const double span = std::max(trace.back().arrival_s - trace.front().arrival_s, 1e-3);
  std::vector<pd::Request> all;
  all.reserve(trace.size() * copies);
  for (std::uint32_t copy = 0; copy < copies; ++copy) {
    const double shift = span * copy / copies;
    for (const pd::Request& request : trace) {
      double at = request.arrival_s - trace.front().arrival_s + shift;
      if (at > span) at -= span;
      all.push_back({.arrival_s = at,
                     .input_tokens = request.input_tokens,
                     .output_tokens = request.output_tokens,
                     .hash_ids = {}});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const pd::Request& a, const pd::Request& b) { return a.arrival_s < b.arrival_s; });
  return all;
}

std::vector<std::string> names_of_models() {
  std::vector<std::string> names;
  for (const pd::Model& model : pd::k_models) names.emplace_back(model.name);
  return names;
}

std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app{
      "Policies that choose a Decode, beside one another, in a fleet in virtual time. What a node takes for a "
      "token is assumed (the options below); only comparisons mean something."};
  app.option_defaults()->always_capture_default();
  fleet::Shape& shape = options.shape;
  const std::vector<std::string> policies(std::begin(pd::k_policies), std::end(pd::k_policies));
  app.add_option("--trace", options.trace, "requests in the Mooncake JSONL format; without it they are made up")
      ->check(pd::named());
  app.add_option("--requests", options.requests, "the first N of them (0: all of a trace, 400 made up)")
      ->check(pd::whole(0, k_trace_requests_max));
  app.add_option("--copies", options.copies, "of the trace at once, shifted: the load")->check(pd::whole(1, 10'000));
  app.add_option("--prefills", shape.prefills, "Prefill nodes")->check(pd::whole(1, k_nodes_max));
  app.add_option("--decodes", shape.decodes, "Decode nodes")->check(pd::whole(1, k_nodes_max));
  app.add_option("--model", options.model, "whose KV is moved")->check(CLI::IsMember(names_of_models()));
  app.add_option("--link", options.links, "what carries the KV; several are run one after another")
      ->check(CLI::IsMember({"hccs", "pcie", "roce"}));
  app.add_option("--policy", options.policies, "how a Decode is chosen; several are run one after another")
      ->check(CLI::IsMember(policies));
  app.add_option("--prefill-tokens-per-s", shape.prefill_tokens_per_s, "tokens a second of one Prefill")
      ->check(pd::real(k_least, k_most));
  app.add_option("--step-ms", options.step_ms, "milliseconds of a Decode's step without KV")
      ->check(pd::real(k_least, k_most));
  app.add_option("--memory-gb-per-s", options.memory_gb_per_s, "GB a second at which a Decode reads KV")
      ->check(pd::real(k_least, k_most));
  app.add_option("--decode-gb", options.decode_gb, "GB of room of a Decode for KV")->check(pd::real(k_least, k_most));
  app.add_option("--slow-share", shape.slow_share, "share of the Decodes that are slow")->check(pd::real(0, 1));
  app.add_option("--slow-factor", shape.slow_factor, "so many times as long take their steps")
      ->check(pd::real(1, 1000));
  app.add_option("--stale-ms", options.stale_ms, "milliseconds that loads may be old when a policy sees them")
      ->check(pd::real(0, k_most));
  app.add_option("--seed", shape.seed, "which Decodes are slow, and requests that are made up")->check(pd::any_seed());
  app.add_option("--json", options.json, "a file for the rows")->check(pd::named());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : k_exit_usage;
  }
  shape.model = *pd::find_model(options.model);
  shape.step_s = options.step_ms / 1000;
  shape.memory_bytes_per_s = options.memory_gb_per_s * 1e9;
  shape.stale_s = options.stale_ms / 1000;
  shape.decode_bytes = options.decode_gb * 1e9;
  return {};
}

int fail(const std::string& what) {
  fmt::print(stderr, "hixl_fleet: {}\n", what);
  return 1;
}

/// "+3.1%"; "-": in a time as short as that of one request nothing was made to compare with.
std::string compared(double rate, double first) {
  return first > 0 ? fmt::format("{:+.1f}%", (rate / first - 1) * 100) : "-";
}

int run(Options& options) {
  fleet::Shape& shape = options.shape;
  pd::TraceFile trace;
  if (options.trace.empty()) {
    const std::size_t count = options.requests == 0 ? 400 : options.requests;
    trace.requests = pd::generate_trace({.seed = shape.seed, .requests = count});
  } else {
    trace = pd::load_trace(options.trace, options.requests);
  }
  if (!trace.problem.empty()) return fail(trace.problem);
  if (const std::uint64_t all = std::uint64_t{trace.requests.size()} * options.copies; all > k_requests_max) {
    return fail(fmt::format("{} requests in {} copies are {}, and at most {} are run: lower --copies or --requests",
                            trace.requests.size(), options.copies, all, k_requests_max));
  }
  const std::vector<pd::Request> requests = spread(trace.requests, options.copies);
  if (const std::string problem = fleet::problem_of(shape, requests); !problem.empty()) return fail(problem);

  fmt::print("{} Prefills, {} Decodes of which {:.0f} % are {:g} times slower, {}, {} requests in {:.0f} s, loads {}\n",
             shape.prefills, shape.decodes, shape.slow_share * 100, shape.slow_factor, shape.model.name,
             requests.size(), requests.back().arrival_s,
             shape.stale_s > 0 ? fmt::format("{:g} ms old", options.stale_ms) : "as they are");
  fmt::print("{:6}{:14}{:>12}{:>12}{:>12}{:>14}{:>12}{:>8}{:>9}\n", "link", "policy", "TTFT p50 s", "TTFT p99 s",
             "room p99 s", "token p99 ms", "tokens/s", "busy", "");
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& name : options.links) {
    shape.link = *std::find_if(std::begin(fleet::k_links), std::end(fleet::k_links),
                               [&](const fleet::LinkProfile& link) { return link.name == name; });
    double first = 0;
    for (const std::string& policy : options.policies) {
      const fleet::Outcome outcome = fleet::run(shape, requests, policy);
      if (outcome.requests != requests.size()) return fail("requests were lost: a fault of this program");
      const double rate = outcome.tokens_per_s;
      if (first == 0) first = rate;
      fmt::print("{:6}{:14}{:>12.3f}{:>12.3f}{:>12.3f}{:>14.1f}{:>12.0f}{:>7.1f}%{:>9}\n", name, policy,
                 fleet::quantile(outcome.first_token_s, 0.5), fleet::quantile(outcome.first_token_s, 0.99),
                 fleet::quantile(outcome.room_s, 0.99), fleet::quantile(outcome.token_s, 0.99) * 1000, rate,
                 outcome.busy * 100, compared(rate, first));
      rows.push_back({{"link", name},
                      {"policy", policy},
                      {"requests", outcome.requests},
                      {"tokens", outcome.tokens},
                      {"seconds", outcome.seconds},
                      {"tokens_per_s", rate},
                      {"busy", outcome.busy},
                      {"ttft_p50_s", fleet::quantile(outcome.first_token_s, 0.5)},
                      {"ttft_p99_s", fleet::quantile(outcome.first_token_s, 0.99)},
                      {"room_p99_s", fleet::quantile(outcome.room_s, 0.99)},
                      {"token_p99_s", fleet::quantile(outcome.token_s, 0.99)},
                      {"stale_ms", options.stale_ms},
                      {"events", outcome.events}});
    }
  }
  if (options.json.empty()) return 0;
  std::ofstream file(options.json);
  file << rows.dump(2) << '\n';
  file.close();
  return file ? 0 : fail(options.json + " cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options;
    const auto usage = parse(argc, argv, options);
    const int code = usage ? *usage : run(options);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return fail("standard output cannot be written");
    return code;
  } catch (const std::bad_alloc&) {
    return fail("not enough memory for so many requests and nodes: lower --copies, --requests or --decodes");
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
