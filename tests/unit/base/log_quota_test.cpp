// SPDX-License-Identifier: Apache-2.0
//
// Quota: how many lines get through, and that none is left out silently. The clock is a number.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/log_quota.hpp"

using namespace hixl;
using namespace std::chrono_literals;
using log::Level;
using log::Quota;
using log::Topic;

namespace {

constexpr Instant k_start{100s};

struct Told {
  std::vector<std::string> lines;
  std::uint64_t sum = 0;
  auto function() {
    return [this](Level, const Topic& topic, std::uint64_t count) {
      lines.push_back(std::string(topic.kind) + " " + std::to_string(count));
      sum += count;
    };
  }
};

}  // namespace

TEST_CASE("S39 S12 of a kind, about the same rank, a period lets some lines through and counts the rest") {
  Quota quota;
  Told told;
  std::uint32_t said = 0;
  for (int i = 0; i < 1000; ++i) said += quota.admit(Level::warn, {"fault", 1}, k_start + i * 1ms) ? 1 : 0;
  CHECK(said == Quota::k_lines_a_period);
  CHECK(quota.due() == k_start + Quota::k_period);
  quota.flush(k_start + Quota::k_period - 1ns, told.function());
  CHECK(told.lines.empty());
  quota.flush(k_start + Quota::k_period, told.function());
  REQUIRE(told.lines.size() == 1);
  CHECK(told.lines.front() == "fault " + std::to_string(1000 - Quota::k_lines_a_period));
  CHECK(quota.due() == k_never);
  CHECK(quota.admit(Level::warn, {"fault", 1}, k_start + Quota::k_period));
}

TEST_CASE("ranks and kinds have quotas of their own") {
  Quota quota;
  for (std::uint32_t i = 0; i < Quota::k_lines_a_period; ++i) {
    CHECK(quota.admit(Level::warn, {"fault", 1}, k_start));
    CHECK(quota.admit(Level::warn, {"fault", 2}, k_start));
    CHECK(quota.admit(Level::warn, {"other", 1}, k_start));
  }
  CHECK_FALSE(quota.admit(Level::warn, {"fault", 1}, k_start));
  CHECK_FALSE(quota.admit(Level::warn, {"fault", 2}, k_start));
  CHECK_FALSE(quota.admit(Level::warn, {"other", 1}, k_start));
}

TEST_CASE("a slow trickle is never cut, and a new period begins with its first line") {
  Quota quota;
  Told told;
  for (int i = 0; i < 100; ++i) CHECK(quota.admit(Level::warn, {"fault", 1}, k_start + i * (Quota::k_period / 4)));
  quota.flush(k_never, told.function());
  CHECK(told.lines.empty());
}

TEST_CASE("S12 a crowd of sources shares one quota beyond the limit of topics, and every line is said or counted") {
  Quota quota;
  Told told;
  constexpr std::uint64_t k_crowd = 10'000;
  std::uint64_t said = 0;
  for (std::uint64_t whom = 0; whom < k_crowd; ++whom)
    said += quota.admit(Level::warn, {"fault", whom}, k_start) ? 1 : 0;
  CHECK(said == Quota::k_topics_max + Quota::k_lines_a_period);
  quota.flush(k_never, told.function());
  CHECK(told.lines.size() == 1);
  CHECK(said + told.sum == k_crowd);
  // The topics of an old period make room.
  CHECK(quota.admit(Level::warn, {"fault", k_crowd}, k_start + Quota::k_period));
}
