// SPDX-License-Identifier: Apache-2.0
//
// Many processes, one word: every value comes once; a lock made of it lets in one at a time; a death in between is told
// as what it is.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::uint64_t k_word = 4096;
constexpr std::size_t k_processes = 8;
/// What one answer of a child carries: a line must stay well below what a socket buffers.
constexpr int k_batch = 5000;

/// Scaled by HIXL_TEST_SCALE (0 … 1); at least one.
int rounds(int full) {
  const char* scale = std::getenv("HIXL_TEST_SCALE");
  const double factor = scale == nullptr ? 1.0 : std::clamp(std::strtod(scale, nullptr), 0.0, 1.0);
  return std::max(1, static_cast<int>(full * factor));
}

std::vector<std::unique_ptr<Guest>> guests(Home& home) {
  std::vector<std::unique_ptr<Guest>> all;
  for (Rank rank = 1; rank <= k_processes; ++rank) all.push_back(std::make_unique<Guest>(home, rank));
  return all;
}

}  // namespace

TEST_CASE("F21: 8 processes count on one word: the values before are 0 … N·M-1, each once") {
  for (const std::string links : {"hccs", "tcp"}) {
    CAPTURE(links);
    Home home(k_processes + 1, links);
    auto children = guests(home);
    const int each = rounds(links == "hccs" ? 100'000 : 2'000);
    std::vector<bool> found(k_processes * static_cast<std::size_t>(each));
    for (int done = 0; done < each; done += k_batch) {
      const std::string count = std::to_string(std::min(k_batch, each - done));
      for (auto& child : children) (*child)->tell("count 0 " + std::to_string(k_word) + " " + count);
      for (auto& child : children) {
        std::istringstream words((*child)->hear());
        std::string ok;
        words >> ok;
        REQUIRE(ok == "ok");
        for (std::uint64_t value = 0; words >> value;) {
          REQUIRE(value < found.size());
          REQUIRE_FALSE(found[value]);
          found[value] = true;
        }
      }
    }
    CHECK(std::count(found.begin(), found.end(), true) == static_cast<std::ptrdiff_t>(found.size()));
    const auto final = home->wait_signal(home.data() + k_word, Compare::equal, found.size(), k_patience);
    require_ok(final);
  }
}

TEST_CASE("F22: a lock of compare_swap lets in one process at a time") {
  for (const std::string links : {"hccs", "tcp"}) {
    CAPTURE(links);
    Home home(k_processes + 1, links);
    auto children = guests(home);
    const int each = rounds(links == "hccs" ? 1000 : 100);
    for (auto& child : children) {
      (*child)->tell("lock 0 " + std::to_string(k_word) + " " + std::to_string(each));
    }
    for (auto& child : children) REQUIRE((*child)->hear() == "ok");
    const std::uint64_t wanted = k_processes * static_cast<std::uint64_t>(each);
    require_ok(home->wait_signal(home.data() + k_word, Compare::equal, 0, k_patience));
    require_ok(home->wait_signal(home.data() + k_word + 8, Compare::equal, wanted, k_patience));
  }
}

TEST_CASE("S14: the target is killed with an atomic unanswered: OUTCOME_UNKNOWN over tcp, never a failure") {
  Home home(2, "tcp");
  Guest guest(home, 1);
  require_ok(home->fetch_add_sync(guest.remote().at(k_word), 1, k_patience));
  guest->stop();
  auto request = home->fetch_add(guest.remote().at(k_word), 1, {.timeout = k_patience});
  require_ok(request);
  // It has left as soon as a get behind it has; neither is answered.
  auto behind = home->get(home.data(), guest.remote().at(0), 8, {.timeout = std::chrono::milliseconds(50)});
  require_ok(behind);
  CHECK(code_of(behind->wait()) == ErrorCode::deadline_exceeded);
  guest->kill();
  CHECK(code_of(request->wait()) == ErrorCode::outcome_unknown);
  CHECK(code_of(request->value()) == ErrorCode::outcome_unknown);
}
