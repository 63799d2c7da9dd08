// SPDX-License-Identifier: Apache-2.0
//
// The receiver does nothing: once met, a rank on the same host gets its data and its signals whatever its program does,
// for longer than any lease, and nobody takes it for dead.
#include <doctest/doctest.h>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_small = 4096;             // the express lane
constexpr std::size_t k_large = (1U << 20U) + 5;  // copy engine
constexpr std::uint64_t k_small_at = 0;
constexpr std::uint64_t k_large_at = 8192;
constexpr std::uint64_t k_signalled_at = 4U << 20U;
constexpr std::size_t k_signalled = 300'000;
constexpr std::uint64_t k_word_at = 7U << 20U;

/// Puts, signals and reads back until three leases have passed, or longer if asked; the number of rounds.
std::uint64_t feed(Home& home, const RemoteRegion& remote) {
  std::byte* const source = home.data();
  std::byte* const back = home.data() + (4U << 20U);
  const auto span = std::max<std::chrono::nanoseconds>(3 * k_lease, settings().at_least);
  const auto end = std::chrono::steady_clock::now() + span;
  std::uint64_t round = 0;
  do {
    round += 1;
    CAPTURE(round);
    fill_pattern(source, k_small, round);
    require_ok(home->put_sync(source, remote.at(k_small_at), k_small));
    fill_pattern(source, k_large, round);
    require_ok(home->put_sync(source, remote.at(k_large_at), k_large));
    std::memset(back, 0, k_large);
    require_ok(home->get_sync(back, remote.at(k_large_at), k_large));
    REQUIRE(holds_pattern(back, k_large, round));
    require_ok(home->get_sync(back, remote.at(k_small_at), k_small));
    REQUIRE(holds_pattern(back, k_small, round));
    auto signalled = home->put_with_signal(source, remote.at(k_signalled_at), k_signalled,
                                           {.word = remote.at(k_word_at), .value = round});
    require_ok(signalled);
    require_ok(signalled->wait());
  } while (std::chrono::steady_clock::now() < end);
  return round;
}

/// What the receiver finds when it looks again: the last round, its signal, and a session that never ended.
void require_all_arrived(Home& home, Guest& guest, std::uint64_t rounds) {
  const std::string seed = std::to_string(rounds);
  REQUIRE(guest->ask("wait " + std::to_string(k_word_at) + " " + seed) == seed);
  REQUIRE(guest->ask("check " + std::to_string(k_small_at) + " " + std::to_string(k_small) + " " + seed) == "ok");
  REQUIRE(guest->ask("check " + std::to_string(k_large_at) + " " + std::to_string(k_large) + " " + seed) == "ok");
  REQUIRE(guest->ask("check " + std::to_string(k_signalled_at) + " " + std::to_string(k_signalled) + " " + seed) ==
          "ok");
  CHECK(home->counters().peers_lost == 0);
  CHECK(home->counters().failed == 0);
  CHECK(guest->ask("lost") == "0");
  for (const LinkInfo& link : home->links()) {
    CAPTURE(name(link.kind));
    CHECK(link.session == 1);
    if (link.chosen) CHECK(link.kind == LinkKind::hccs);
  }
  require_traffic_both_ways(home, guest, rounds + 1);
  CHECK(home->counters().lane_operations > 2 * rounds - 1);
  MESSAGE(rounds << " rounds");
}

}  // namespace

TEST_CASE("F109 a receiver whose program computes gets everything") {
  for (const std::string links : {"", "hccs"}) {
    CAPTURE(links);
    Home home(2, links);
    Guest guest(home, 1);
    REQUIRE(guest->ask("away") == "away");
    const std::uint64_t rounds = feed(home, guest.remote());
    REQUIRE(guest->ask("on") == "back");
    require_all_arrived(home, guest, rounds);
  }
}

TEST_CASE("F109 a receiver whose own loop is blocked inside a callback gets everything") {
  for (const std::string links : {"", "hccs"}) {
    CAPTURE(links);
    Home home(2, links);
    Guest guest(home, 1, {"--hosted"});
    REQUIRE(guest->ask("away") == "away");
    const std::uint64_t rounds = feed(home, guest.remote());
    REQUIRE(guest->ask("on") == "back");
    require_all_arrived(home, guest, rounds);
    guest->tell("quit");
    CHECK(guest->wait() == 0);
  }
}

TEST_CASE("F109 a stopped receiver gets everything") {
  for (const std::string links : {"", "hccs"}) {
    CAPTURE(links);
    Home home(2, links);
    Guest guest(home, 1);
    guest->stop();
    const std::uint64_t rounds = feed(home, guest.remote());
    guest->resume();
    require_all_arrived(home, guest, rounds);
    guest->tell("quit");
    CHECK(guest->wait() == 0);
  }
}
