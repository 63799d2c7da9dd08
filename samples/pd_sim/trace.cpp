// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model.hpp"

namespace pd {

namespace {

std::size_t blocks_of(std::uint32_t tokens) { return (std::size_t{tokens} + k_block_tokens - 1) / k_block_tokens; }

constexpr double k_timestamp_ms_max = 1e13;               // in milliseconds of the epoch: the year 2286
constexpr std::uint32_t k_output_tokens_max = 1'000'000;  // beyond every model's context

/// What a field may be. A number that the type does not hold is refused, and not made to fit.
struct Field {
  std::string name;
  double low = 0;
  double high = 0;
  bool whole = true;
};
const Field k_timestamp{"timestamp", 0, k_timestamp_ms_max, false};
const Field k_input{"input_length", 1, double{k_request_blocks_max} * k_block_tokens};
const Field k_output{"output_length", 1, k_output_tokens_max};

struct BadField {
  std::string what;
};

double read(const nlohmann::json& line, const Field& field) {
  const auto found = line.find(field.name);
  if (found == line.end()) throw BadField{"no " + field.name};
  const bool number = field.whole ? found->is_number_integer() : found->is_number();
  const double value = number ? found->get<double>() : 0;
  if (!number || !(value >= field.low && value <= field.high)) {
    throw BadField{fmt::format("{} is {:.40}, which is not a {}number from {:.0f} to {:.0f}", field.name, found->dump(),
                               field.whole ? "whole " : "", field.low, field.high)};
  }
  return value;
}

std::vector<std::uint64_t> read_hash_ids(const nlohmann::json& line) {
  const auto found = line.find("hash_ids");
  if (found == line.end() || !found->is_array()) throw BadField{"hash_ids is no list"};
  for (const auto& id : *found) {
    if (!id.is_number_unsigned()) {
      throw BadField{fmt::format("hash_ids has {:.40}, which is not a whole number from 0 to 2^64-1", id.dump())};
    }
  }
  return found->get<std::vector<std::uint64_t>>();
}

std::string problem_of(const Request& request) {
  if (request.hash_ids.size() != blocks_of(request.input_tokens)) return "hash_ids that do not cover the input";
  if (request.hash_ids.size() > k_request_blocks_max) return "more blocks than a control message holds";
  return {};
}

}  // namespace

TraceFile load_trace(const std::string& path, std::size_t limit) {
  TraceFile result;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    result.problem = path + ": is a folder, and a trace is a file";
    return result;
  }
  std::ifstream file(path);
  if (!file) {
    result.problem = path + ": cannot be opened";
    return result;
  }
  std::string line;
  for (std::size_t number = 1; std::getline(file, line) && (limit == 0 || result.requests.size() < limit); ++number) {
    if (line.empty()) continue;
    Request request;
    std::string problem;
    try {
      const auto json = nlohmann::json::parse(line);
      if (!json.is_object()) throw BadField{"not a JSON object"};
      request.arrival_s = read(json, k_timestamp) / 1000.0;
      request.input_tokens = static_cast<std::uint32_t>(read(json, k_input));
      request.output_tokens = static_cast<std::uint32_t>(read(json, k_output));
      request.hash_ids = read_hash_ids(json);
      problem = problem_of(request);
    } catch (const BadField& bad) {
      problem = bad.what;
    } catch (const nlohmann::json::exception& error) {
      problem = error.what();
    }
    if (!problem.empty()) {
      result.problem = path + ":" + std::to_string(number) + ": " + problem;
      return result;
    }
    result.requests.push_back(std::move(request));
  }
  if (result.requests.empty()) result.problem = path + ": no requests";
  std::stable_sort(result.requests.begin(), result.requests.end(),
                   [](const Request& a, const Request& b) { return a.arrival_s < b.arrival_s; });
  return result;
}

std::vector<Request> generate_trace(const GeneratorOptions& options) {
  std::mt19937_64 random(options.seed);
  std::exponential_distribution<double> gap_s(options.arrivals_per_s);
  // Medians near those of public conversation traces: inputs of some thousand tokens with a long tail, short answers.
  std::lognormal_distribution<double> turn_tokens(8.2, 0.9);
  std::lognormal_distribution<double> answer_tokens(5.5, 0.7);
  std::bernoulli_distribution comes_back(0.45);

  struct Conversation {
    std::vector<std::uint64_t> hash_ids;
  };
  std::vector<Conversation> conversations;
  std::uint64_t next_hash = 1;  // 0 is the system prompt, which every conversation begins with
  double now_s = 0;
  std::vector<Request> requests;
  while (requests.size() < options.requests) {
    now_s += gap_s(random);
    if (conversations.empty() || !comes_back(random)) conversations.push_back({{0}});
    // Recent conversations come back more often than old ones.
    const std::size_t recent = std::min<std::size_t>(conversations.size(), 32);
    const std::size_t which =
        conversations.size() - 1 - std::uniform_int_distribution<std::size_t>(0, recent - 1)(random);
    Conversation& conversation = conversations[which];
    const double tokens = std::clamp(turn_tokens(random), 64.0, 60'000.0);
    const std::size_t fresh = std::max<std::size_t>(1, static_cast<std::size_t>(tokens) / k_block_tokens);
    if (conversation.hash_ids.size() + fresh > k_request_blocks_max / 2) conversation.hash_ids = {0};
    for (std::size_t i = 0; i < fresh && conversation.hash_ids.size() < k_request_blocks_max; ++i) {
      conversation.hash_ids.push_back(next_hash++);
    }
    Request request;
    request.arrival_s = now_s;
    request.hash_ids = conversation.hash_ids;
    request.input_tokens = static_cast<std::uint32_t>(conversation.hash_ids.size()) * k_block_tokens;
    request.output_tokens = static_cast<std::uint32_t>(std::clamp(answer_tokens(random), 1.0, 2000.0));
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace pd
