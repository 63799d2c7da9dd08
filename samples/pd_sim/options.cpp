// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <charconv>
#include <cstdio>
#include <string_view>

#include <CLI/CLI.hpp>

#include "checks.hpp"
#include "model.hpp"
#include "policy.hpp"

namespace pd {

namespace {

constexpr double k_seconds_max = 86'400;  // a day

template <class Number>
bool read_number(std::string_view part, Number& value) {
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  return error == std::errc{} && end == part.data() + part.size();
}

std::string parse_kill(const std::string& text, std::optional<Kill>& kill) {
  const std::size_t at = text.find('@');
  Kill parsed;
  const std::string_view view(text);
  if (at == std::string::npos || !read_number(view.substr(0, at), parsed.decode) ||
      !read_number(view.substr(at + 1), parsed.after_s) || !(parsed.after_s >= 0 && parsed.after_s <= k_seconds_max)) {
    return "--kill-decode: expected K@SECONDS";
  }
  kill = parsed;
  return {};
}

/// "true" is what a flag without a value is given.
std::string parse_cut(const std::string& text, std::optional<Cut>& cut) {
  Cut parsed;
  const std::size_t at = text.find('-');
  const std::string_view view(text);
  if (text != "true" && (at == std::string::npos || !read_number(view.substr(0, at), parsed.from_s) ||
                         !read_number(view.substr(at + 1), parsed.to_s) || !(parsed.from_s >= 0) ||
                         !(parsed.to_s > parsed.from_s) || !(parsed.to_s <= k_seconds_max))) {
    return "--cut-link: expected FROM-TO, in seconds, or nothing";
  }
  cut = parsed;
  return {};
}

constexpr int k_exit_usage = 2;

std::string names_of_models() {
  std::string text;
  for (const Model& model : k_models) text += (text.empty() ? "" : ", ") + std::string(model.name);
  return text;
}

}  // namespace

Parsed parse_options(int argc, char** argv) {
  Parsed parsed;
  Options& options = parsed.options;
  std::string kill;
  std::string cut;
  CLI::App app("Simulates a Prefill/Decode cluster: real processes, real KV geometry, every byte checked.");
  app.add_option("--prefill", options.prefill, "Prefill ranks")->capture_default_str()->check(whole(1, 256));
  app.add_option("--decode", options.decode, "Decode ranks")->capture_default_str()->check(whole(1, 256));
  app.add_option("--model", options.model, names_of_models())
      ->capture_default_str()
      ->check([](const std::string& name) {
        return find_model(name) ? std::string() : "no such model: " + name + " (" + names_of_models() + ")";
      });
  app.add_option("--trace", options.trace, "requests in the Mooncake JSONL format; none: made up from the seed")
      ->check(named());
  app.add_option("--requests", options.requests, "at most so many requests; 0: all of a trace, 400 made up")
      ->check(whole(0, 1'000'000));
  app.add_option("--seed", options.seed, "seed of made-up requests")->capture_default_str()->check(any_seed());
  app.add_option("--policy", options.policy, "round_robin, least_loaded, two_choices, most_loaded")
      ->capture_default_str()
      ->check([](const std::string& name) { return make_policy(name) ? std::string() : "no such policy: " + name; });
  app.add_option("--prefill-speed", options.prefill_tokens_per_s, "tokens a second of one Prefill")
      ->capture_default_str()
      ->check(real(1, 1e9));
  app.add_option("--decode-speed", options.decode_tokens_per_s, "tokens a second of one sequence")
      ->capture_default_str()
      ->check(real(0.1, 1e9));
  app.add_option("--scale", options.scale, "divide KV bytes by this; default: what fits memory and a minute")
      ->check(real(1, 1e9));
  app.add_option("--speedup", options.speedup, "run the trace's clock faster; default: what fits a minute")
      ->check(real(1e-3, 1e9));
  app.add_option("--seconds", options.seconds_max, "the run ends by then")
      ->capture_default_str()
      ->check(real(1, k_seconds_max));
  app.add_option("--json", options.json, "write the report there")->check(named());
  app.add_option("--kill-decode", kill, "K@SECONDS: kill -9 Decode K then");
  app.add_flag("--cut-link", cut,
               "two tcp links a pair, the second cut and healed in the middle; --cut-link=FROM-TO: then, in seconds");
  app.add_option("--rank-fd", parsed.rank_fd)->group("");  // internal
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = app.exit(error) == 0 ? 0 : k_exit_usage;
    return parsed;
  }
  if (!kill.empty()) {
    std::string problem = parse_kill(kill, options.kill);
    if (problem.empty() && options.kill->decode >= options.decode) problem = "--kill-decode: no such Decode";
    if (!problem.empty()) {
      std::fprintf(stderr, "%s\n", problem.c_str());
      parsed.exit_code = k_exit_usage;
    }
  }
  if (!cut.empty()) {
    std::string problem = parse_cut(cut, options.cut);
    if (problem.empty() && options.kill) problem = "--cut-link and --kill-decode: one at a time";
    if (!problem.empty()) {
      std::fprintf(stderr, "%s\n", problem.c_str());
      parsed.exit_code = k_exit_usage;
    }
  }
  return parsed;
}

}  // namespace pd
