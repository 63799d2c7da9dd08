// SPDX-License-Identifier: Apache-2.0
//
// hixl_run: starts ranks that can meet, ends as the rank that failed, and takes its ranks with it.
#include <doctest/doctest.h>

#include <set>
#include <sstream>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

std::vector<std::string> ranks(int count, std::vector<std::string> rest = {}) {
  std::vector<std::string> arguments{"--grace",           "1", "-n", std::to_string(count), settings().rank_program,
                                     "--tell-environment"};
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  return arguments;
}

struct Told {
  pid_t pid = 0;
  std::string rank, size, store;
};
Told told(const std::string& line) {
  Told result;
  std::string word;
  std::istringstream(line) >> word >> result.pid >> word >> result.rank >> word >> result.size >> word >> result.store;
  return result;
}

std::vector<Told> all_told(Child& launcher, int count) {
  std::vector<Told> result;
  for (int i = 0; i < count; ++i) result.push_back(told(launcher.hear()));
  return result;
}

}  // namespace

TEST_CASE("hixl_run gives every rank its number, the world size and one store") {
  // The ranks share our socket as standard input: each takes one of the lines and leaves in order.
  Child launcher(settings().launcher_program, ranks(3));
  std::set<std::string> numbers;
  std::set<std::string> stores;
  for (const Told& rank : all_told(launcher, 3)) {
    numbers.insert(rank.rank);
    stores.insert(rank.store);
    CHECK(rank.size == "3");
  }
  CHECK(numbers == std::set<std::string>{"0", "1", "2"});
  REQUIRE(stores.size() == 1);
  CHECK(stores.begin()->rfind("tcp://127.0.0.1:", 0) == 0);
}

TEST_CASE("hixl_run ends as the rank that failed, and ends the others") {
  Child launcher(settings().launcher_program, ranks(3, {"--exit-at-rank", "1", "--exit-code", "7"}));
  const std::vector<Told> all = all_told(launcher, 3);
  CHECK(launcher.wait() == 7);
  for (const Told& rank : all) CHECK_FALSE(process_exists(rank.pid));
  CHECK(launcher.log().find("rank 1 ended with code 7") != std::string::npos);
}

TEST_CASE("hixl_run says when there is no such program") {
  Child launcher(settings().launcher_program, {"-n", "2", "/no/such/program"});
  CHECK(launcher.wait() == 127);
}

TEST_CASE("S47 ranks die with their launcher") {
  Child launcher(settings().launcher_program, ranks(3));
  const std::vector<Told> all = all_told(launcher, 3);
  launcher.kill();
  for (const Told& rank : all) CHECK(eventually([&] { return !process_exists(rank.pid); }));
}
