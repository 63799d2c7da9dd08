// SPDX-License-Identifier: Apache-2.0
//
// LimitedLog: what reaches standard error by the clock of the loop, and that the rest is told without a further event.
#include <unistd.h>

#include <cstdio>
#include <string>

#include <doctest/doctest.h>

#include "fake_port.hpp"
#include "runtime/loop.hpp"

using namespace hixl;
using namespace std::chrono_literals;

namespace {

/// Standard error goes to a file while it lives.
class Captured {
 public:
  Captured() : file_(std::tmpfile()), before_(::dup(STDERR_FILENO)) {
    REQUIRE(file_ != nullptr);
    REQUIRE(::dup2(::fileno(file_), STDERR_FILENO) == STDERR_FILENO);
  }
  ~Captured() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    std::fclose(file_);
  }
  [[nodiscard]] std::size_t count(const std::string& part) {
    std::string text(static_cast<std::size_t>(std::max(0L, size())), '\0');
    text.resize(static_cast<std::size_t>(::pread(::fileno(file_), text.data(), text.size(), 0)));
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
    return found;
  }

 private:
  [[nodiscard]] long size() { return static_cast<long>(::lseek(::fileno(file_), 0, SEEK_END)); }
  std::FILE* file_;
  int before_;
};

}  // namespace

TEST_CASE("S39 L4 lines beyond the quota are told by one line when the period is over, by a timer alone") {
  test::FakePort port;
  runtime::Loop loop(port, 1, 16);
  static_cast<void>(loop.turn());
  Captured captured;
  for (int i = 0; i < 100; ++i) loop.log().warn({"knocks of rank", 7}, "rank {} knocked", 7);
  CHECK(captured.count("rank 7 knocked") == log::Quota::k_lines_a_period);
  CHECK(captured.count("suppressed") == 0);
  REQUIRE(loop.next_due() <= port.now() + log::Quota::k_period);
  port.pass(log::Quota::k_period);
  for (int i = 0; i < 3; ++i) static_cast<void>(loop.turn());
  CHECK(captured.count("knocks of rank 7: 95 more suppressed") == 1);
  port.pass(10 * log::Quota::k_period);
  for (int i = 0; i < 3; ++i) static_cast<void>(loop.turn());
  CHECK(captured.count("suppressed") == 1);
  loop.log().warn({"knocks of rank", 7}, "rank {} knocked", 7);
  CHECK(captured.count("rank 7 knocked") == log::Quota::k_lines_a_period + 1);
}

TEST_CASE("L4 what was left out is told at the end of the loop, too; a level that is off costs no quota") {
  test::FakePort port;
  Captured captured;
  {
    runtime::Loop loop(port, 1, 16);
    for (int i = 0; i < 100; ++i) loop.log().info({"knocks"}, "a quiet knock");
    for (int i = 0; i < 7; ++i) loop.log().warn({"knocks"}, "a knock");
  }
  CHECK(captured.count("a quiet knock") == 0);
  CHECK(captured.count("a knock") == log::Quota::k_lines_a_period);
  CHECK(captured.count("knocks: 2 more suppressed") == 1);
}
