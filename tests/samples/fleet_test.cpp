// SPDX-License-Identifier: Apache-2.0
//
// The fleet in virtual time: what one request takes is a formula, nothing is lost, and the same comes out every time.
#include <fleet.hpp>

#include <doctest/doctest.h>

#include <cmath>

using namespace fleet;

namespace {

pd::Request request_of(double arrival_s, std::uint32_t input, std::uint32_t output) {
  return {.arrival_s = arrival_s, .input_tokens = input, .output_tokens = output, .hash_ids = {}};
}

bool near(double a, double b) { return std::abs(a - b) < 1e-9 * std::max({1.0, std::abs(a), std::abs(b)}); }

Shape small() {
  Shape shape;
  shape.prefills = 1;
  shape.decodes = 1;
  shape.slow_share = 0;
  return shape;
}

double token_bytes(const Shape& shape) {
  return static_cast<double>(shape.model.layers) * shape.model.token_layer_bytes;
}

double step_s(const Shape& shape, double context_tokens) {
  return shape.step_s + context_tokens * token_bytes(shape) / shape.memory_bytes_per_s;
}

std::vector<pd::Request> some(std::size_t count, double arrivals_per_s) {
  auto requests = pd::generate_trace({.seed = 3, .requests = count, .arrivals_per_s = arrivals_per_s});
  for (auto& request : requests) request.hash_ids.clear();
  return requests;
}

}  // namespace

TEST_CASE("one request: its computation, its last layer's way, and a step for each token") {
  Shape shape = small();
  const double compute_s = 4000 / shape.prefill_tokens_per_s;
  const double bytes = 4000 * token_bytes(shape);
  double there = 0;
  SUBCASE("layers are computed more slowly than they are pushed") {
    shape.link = {"fast", 100e9, 1e-3};
    there = compute_s + bytes / shape.model.layers / shape.link.bytes_per_s + 1e-3;
  }
  SUBCASE("the link is the limit, from the first layer on") {
    shape.link = {"slow", 1e9, 1e-3};
    there = compute_s / shape.model.layers + bytes / shape.link.bytes_per_s + 1e-3;
  }
  SUBCASE("a slow Decode") {
    shape.link = {"fast", 100e9, 0};
    shape.slow_share = 1;
    shape.slow_factor = 5;
    there = compute_s + bytes / shape.model.layers / shape.link.bytes_per_s;
  }
  const Outcome outcome = run(shape, {request_of(2, 4000, 3)}, "round_robin");
  CHECK(outcome.requests == 1);
  CHECK(outcome.tokens == 3);
  const double factor = shape.slow_share > 0 ? shape.slow_factor : 1;
  CHECK(near(outcome.first_token_s.front(), there + factor * step_s(shape, 4000)));
  CHECK(near(outcome.token_s.front(), factor * (step_s(shape, 4001) + step_s(shape, 4002)) / 2));
  CHECK(outcome.room_s.front() == 0);
}

TEST_CASE("flows into one Decode share its link, and it has room for what fits alone") {
  Shape shape = small();
  shape.prefills = 2;
  shape.link = {"slow", 1e9, 0};
  const double bytes = 4000 * token_bytes(shape);
  const std::vector<pd::Request> two{request_of(0, 4000, 1), request_of(0, 4000, 1)};
  const double first_layer_s = 4000 / shape.prefill_tokens_per_s / shape.model.layers;
  Outcome outcome = run(shape, two, "least_loaded");
  const double both = first_layer_s + 2 * bytes / shape.link.bytes_per_s;
  // The first that is there makes its token alone.
  CHECK(near(outcome.first_token_s.front(), both + step_s(shape, 4000)));
  shape.decode_bytes = 1.5 * bytes;
  outcome = run(shape, two, "least_loaded");
  const double alone = first_layer_s + bytes / shape.link.bytes_per_s + step_s(shape, 4000);
  CHECK(near(outcome.first_token_s.front(), alone));
  CHECK(near(outcome.room_s.back(), alone));
  CHECK(near(outcome.first_token_s.back(), alone + bytes / shape.link.bytes_per_s + step_s(shape, 4000)));
  shape.decode_bytes = 0.5 * bytes;
  CHECK_FALSE(problem_of(shape, two).empty());
}

TEST_CASE("nothing is lost, by any policy, and the same comes out every time") {
  Shape shape;
  shape.prefills = 12;
  shape.decodes = 7;
  shape.link = k_links[2];
  const auto requests = some(500, 6);
  std::uint64_t tokens = 0;
  for (const pd::Request& request : requests) tokens += request.output_tokens;
  REQUIRE(problem_of(shape, requests).empty());
  for (const char* policy : {"round_robin", "least_loaded", "two_choices", "most_loaded"}) {
    CAPTURE(policy);
    const Outcome outcome = run(shape, requests, policy);
    CHECK(outcome.requests == requests.size());
    CHECK(outcome.tokens == tokens);
    CHECK(outcome.busy > 0);
    CHECK(outcome.busy <= 1);
    const Outcome again = run(shape, requests, policy);
    CHECK(again.first_token_s == outcome.first_token_s);
    CHECK(again.token_s == outcome.token_s);
    CHECK(again.events == outcome.events);
  }
}

TEST_CASE("F55 least loaded beats turns where some Decodes are slow; loads that are old send all to one") {
  Shape shape;
  shape.prefills = 30;
  shape.decodes = 15;
  const auto requests = some(1500, 12);
  const Outcome turns = run(shape, requests, "round_robin");
  const Outcome least = run(shape, requests, "least_loaded");
  CHECK(quantile(least.first_token_s, 0.99) < quantile(turns.first_token_s, 0.99));
  shape.stale_s = 20;
  const Outcome old = run(shape, requests, "least_loaded");
  CHECK(quantile(old.first_token_s, 0.99) > quantile(least.first_token_s, 0.99));
  CHECK(quantile(run(shape, requests, "two_choices").first_token_s, 0.99) < quantile(old.first_token_s, 0.99));
}
