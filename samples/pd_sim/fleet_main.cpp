// SPDX-License-Identifier: Apache-2.0
//
// hixl_fleet: which Decode should get the next request, asked of a fleet that no machine at hand could run.
#include <cstdio>
#include <fstream>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "policy.hpp"
#include "fleet.hpp"

namespace {

struct Options {
  fleet::Shape shape;
  std::string trace, json, model = "llama3-70b";
  std::vector<std::string> links, policies;
  std::size_t requests = 0;
  std::uint32_t copies = 100;
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

std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app{
      "Policies that choose a Decode, beside one another, in a fleet in virtual time. What a node takes for a "
      "token is assumed (the options below); only comparisons mean something."};
  fleet::Shape& shape = options.shape;
  const auto positive = CLI::PositiveNumber;
  app.add_option("--trace", options.trace, "requests in the Mooncake JSONL format; without it they are made up");
  app.add_option("--requests", options.requests, "the first N of them (0: all of a trace, 400 made up)");
  app.add_option("--copies", options.copies, "of the trace at once, shifted: the load")->check(CLI::Range(1, 10'000));
  app.add_option("--prefills", shape.prefills)->check(CLI::Range(1, 1 << 20));
  app.add_option("--decodes", shape.decodes)->check(CLI::Range(1, 1 << 20));
  app.add_option("--model", options.model)->check([](const std::string& name) {
    return pd::find_model(name) ? std::string() : "no such model: " + name;
  });
  app.add_option("--link", options.links, "hccs, pcie, roce; several are run one after another; all without it")
      ->check(CLI::IsMember({"hccs", "pcie", "roce"}));
  app.add_option("--policy", options.policies,
                 "round_robin, least_loaded, two_choices, most_loaded; the first three "
                 "without it")
      ->check(
          [](const std::string& name) { return pd::make_policy(name) ? std::string() : "no such policy: " + name; });
  app.add_option("--prefill-tokens-per-s", shape.prefill_tokens_per_s)->check(positive);
  app.add_option("--step-ms", shape.step_s, "a Decode's step without KV")
      ->transform([](const std::string& text) { return std::to_string(std::stod(text) / 1000); })
      ->check(positive);
  app.add_option("--memory-gb-per-s", shape.memory_bytes_per_s, "at which a Decode reads KV")
      ->transform([](const std::string& text) { return std::to_string(std::stod(text) * 1e9); })
      ->check(positive);
  app.add_option("--decode-gb", options.decode_gb, "room of a Decode for KV")->check(positive);
  app.add_option("--slow-share", shape.slow_share, "of the Decodes that are slow")->check(CLI::Range(0.0, 1.0));
  app.add_option("--slow-factor", shape.slow_factor, "how slow")->check(CLI::Range(1.0, 1000.0));
  app.add_option("--stale-ms", options.stale_ms, "how old loads may be when a policy sees them")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", shape.seed, "which Decodes are slow, and requests that are made up");
  app.add_option("--json", options.json, "a file for the rows");
  app.option_defaults()->always_capture_default();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  shape.model = *pd::find_model(options.model);
  shape.stale_s = options.stale_ms / 1000;
  shape.decode_bytes = options.decode_gb * 1e9;
  if (options.links.empty()) options.links = {"hccs", "pcie", "roce"};
  if (options.policies.empty()) options.policies = {"round_robin", "least_loaded", "two_choices"};
  return {};
}

int fail(const std::string& what) {
  fmt::print(stderr, "hixl_fleet: {}\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto code = parse(argc, argv, options)) return *code;
  fleet::Shape& shape = options.shape;
  pd::TraceFile trace;
  if (options.trace.empty()) {
    const std::size_t count = options.requests == 0 ? 400 : options.requests;
    trace.requests = pd::generate_trace({.seed = shape.seed, .requests = count});
  } else {
    trace = pd::load_trace(options.trace, options.requests);
  }
  if (!trace.problem.empty()) return fail(trace.problem);
  const std::vector<pd::Request> requests = spread(trace.requests, options.copies);
  if (const std::string problem = fleet::problem_of(shape, requests); !problem.empty()) return fail(problem);

  fmt::print("{} Prefills, {} Decodes of which {:.0f} % are {:g} times slower, {}, {} requests in {:.0f} s, loads {}\n",
             shape.prefills, shape.decodes, shape.slow_share * 100, shape.slow_factor, shape.model.name,
             requests.size(), requests.back().arrival_s,
             shape.stale_s > 0 ? fmt::format("{:g} ms old", options.stale_ms) : "as they are");
  fmt::print("{:6}{:14}{:>12}{:>12}{:>12}{:>12}{:>12}{:>8}{:>9}\n", "link", "policy", "TTFT p50 s", "TTFT p99 s",
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
      fmt::print("{:6}{:14}{:>12.3f}{:>12.3f}{:>12.3f}{:>12.1f}{:>12.0f}{:>7.1f}%{:>+8.1f}%\n", name, policy,
                 fleet::quantile(outcome.first_token_s, 0.5), fleet::quantile(outcome.first_token_s, 0.99),
                 fleet::quantile(outcome.room_s, 0.99), fleet::quantile(outcome.token_s, 0.99) * 1000, rate,
                 outcome.busy * 100, (rate / first - 1) * 100);
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
