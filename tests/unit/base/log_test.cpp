// SPDX-License-Identifier: Apache-2.0
//
// The log: its level comes from HIXL_LOG, its lines go to stderr. The level is read once a process, so each check runs
// this program again with another environment and reads what it wrote.
#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"

using namespace hixl;

namespace {

constexpr int k_threads = 4;
constexpr int k_lines_each = 200;

/// stderr of the test case "log child" with HIXL_LOG set to `level`.
std::string child_output(const std::string& level) {
  const std::string self = "/proc/" + std::to_string(getpid()) + "/exe";
  const std::string command = "HIXL_LOG='" + level + "' exec " + self + " --no-skip -tc='log child' 2>&1 >/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string output;
  char buffer[4096];
  for (std::size_t size; (size = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, size);
  REQUIRE(pclose(pipe) == 0);
  return output;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

}  // namespace

TEST_CASE("log child" * doctest::skip()) {
  log::emit(log::Level::trace, "a trace");
  log::debug("a debug line");
  log::info("an info line");
  log::warn("a warning {}", 17);
  log::error("an error with braces {}", "{} %s");
  std::vector<std::thread> threads;
  for (int i = 0; i < k_threads; ++i) {
    threads.emplace_back([i] {
      for (int line = 0; line < k_lines_each; ++line) log::error("thread {} line {} end", i, line);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("log: HIXL_LOG chooses the level") {
  struct Case {
    const char* level;
    std::size_t trace, debug, info, warn, error;
  };
  for (const Case& c : {Case{"trace", 1, 1, 1, 1, 1}, Case{"debug", 0, 1, 1, 1, 1}, Case{"info", 0, 0, 1, 1, 1},
                        Case{"warn", 0, 0, 0, 1, 1}, Case{"", 0, 0, 0, 1, 1}, Case{"error", 0, 0, 0, 0, 1},
                        Case{"off", 0, 0, 0, 0, 0}}) {
    CAPTURE(c.level);
    const std::string output = child_output(c.level);
    CHECK(count(output, "a trace\n") == c.trace);
    CHECK(count(output, "a debug line\n") == c.debug);
    CHECK(count(output, "an info line\n") == c.info);
    CHECK(count(output, "a warning 17\n") == c.warn);
    CHECK(count(output, "an error with braces {} %s\n") == c.error);
  }
}

TEST_CASE("log: a level that is none is named, and warn is used") {
  const std::string output = child_output("loud");
  CHECK(count(output, "HIXL_LOG=loud is no level") == 1);
  CHECK(count(output, "a warning 17\n") == 1);
  CHECK(count(output, "an info line\n") == 0);
}

TEST_CASE("log: lines of several threads stay whole") {
  const std::string output = child_output("error");
  for (int i = 0; i < k_threads; ++i) {
    for (int line = 0; line < k_lines_each; ++line) {
      REQUIRE(count(output, "error: thread " + std::to_string(i) + " line " + std::to_string(line) + " end\n") == 1);
    }
  }
}
