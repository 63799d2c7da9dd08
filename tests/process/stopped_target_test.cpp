// SPDX-License-Identifier: Apache-2.0
//
// A target that stands still, over tcp: its operations end in time, nobody else notices, and it comes back.
#include <doctest/doctest.h>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t k_large = 256U << 20U;
constexpr std::chrono::milliseconds k_deadline{500};

std::uint64_t sent_over_tcp(Home& home) { return home->counters().bytes_out[static_cast<std::size_t>(LinkKind::tcp)]; }

/// The session is over: posting is refused at once.
bool is_forgotten(Home& home, Guest& guest) {
  const ErrorCode code = code_of(home->put(home.data(), guest.remote().at(0), 8));
  return code == ErrorCode::not_exchanged || code == ErrorCode::stale;
}

/// Posts the large put and stops the target while it is under way. Tries again when the put was faster.
Request stop_in_the_middle(Home& home, Guest& guest, Clock::time_point& posted_at) {
  constexpr int k_tries = 20;
  for (int i = 0; i < k_tries; ++i) {
    const std::uint64_t before = sent_over_tcp(home);
    posted_at = Clock::now();
    auto request = home->put(home.data(), guest.remote().at(0), k_large, {.timeout = k_deadline});
    require_ok(request);
    while (sent_over_tcp(home) == before && !request->done()) {
    }
    guest->stop();
    if (!request->done()) return *request;
    guest->resume();
  }
  FAIL("the put is always faster than the signal");
  return {};
}

}  // namespace

TEST_CASE("P3 P5 a target that stops in the middle of a put: it ends in time, others go on, the target comes back") {
  Home home(3, "tcp", k_large);
  Guest stopped(home, 1, {"--bytes", std::to_string(k_large)});
  Guest other(home, 2);
  fill_pattern(home.data(), k_large, 1);

  Clock::time_point posted_at;
  Request request = stop_in_the_middle(home, stopped, posted_at);
  std::uint64_t puts_to_other = 0;
  while (!request.done()) {
    require_ok(home->put_sync(home.data() + puts_to_other % 64, other.remote().at(0), 64U << 10U));
    puts_to_other += 1;
    REQUIRE(Clock::now() - posted_at < k_patience);
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - posted_at);
  MESSAGE("the put ended after " << took.count() << " ms with " << std::string(name(code_of(request.query()))) << ", "
                                 << puts_to_other << " puts to the other rank meanwhile");
  const ErrorCode code = code_of(request.query());
  CHECK((code == ErrorCode::deadline_exceeded || code == ErrorCode::peer_lost));
  CHECK(took >= k_deadline);
  CHECK(puts_to_other > 0);

  // The local memory is free: used anew for the other rank, while what is left of the first put must not show up there.
  fill_pattern(home.data(), 1U << 20U, 2);
  require_ok(home->put_sync(home.data(), other.remote().at(0), 1U << 20U));
  CHECK(other->ask("check 0 1048576 2") == "ok");

  // Once its lease is over, posts to it end at once, and it takes up a new session when it runs again.
  REQUIRE(eventually([&] { return is_forgotten(home, stopped); }));
  stopped->resume();
  REQUIRE(eventually([&] { return home->put_sync(home.data(), stopped.remote().at(0), 8).has_value(); }));
  require_traffic_both_ways(home, stopped, 3);
  require_traffic_both_ways(home, other, 4);
  for (const LinkInfo& link : home->links()) {
    CAPTURE(link.rank);
    CHECK((link.session > 1) == (link.rank == 1));
  }
}

TEST_CASE("P3 an exchange after a lost session tells what is published now") {
  Home home(2, "tcp");
  Guest guest(home, 1);
  guest->stop();
  REQUIRE(eventually([&] { return is_forgotten(home, guest); }));
  guest->resume();
  REQUIRE(eventually([&] { return home->put_sync(home.data(), guest.remote().at(0), 8).has_value(); }));

  constexpr std::size_t k_new_bytes = 3U << 20U;
  const auto mine = home->allocate(k_new_bytes);
  require_ok(mine);
  guest->tell("renew 0 " + std::to_string(k_new_bytes));
  const RemoteRegion renewed = home.meet(1, *mine);
  REQUIRE(guest->hear() == "ok");
  CHECK(renewed.length == k_new_bytes);
  fill_pattern(home.data(), 4096, 5);
  require_ok(home->put_sync(home.data(), renewed.at(0), 4096));
  CHECK(guest->ask("check 0 4096 5") == "ok");
  REQUIRE(guest->ask("put 0 0 4096 6") == "ok");
  CHECK(holds_pattern(mine->data, 4096, 6));
}
