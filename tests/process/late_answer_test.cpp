// SPDX-License-Identifier: Apache-2.0
//
// Answers that come late or never: the target stands still, the operation ends in its time, and its memory is used for
// something else at once. Whatever the target does when it runs again, no byte of the old operation moves.
#include <algorithm>

#include <doctest/doctest.h>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

using namespace std::chrono_literals;

constexpr std::size_t k_part = 2U << 20U;

bool all_are(const std::byte* data, std::size_t bytes, std::byte value) {
  return std::all_of(data, data + bytes, [value](std::byte byte) { return byte == value; });
}

/// Runs the target and talks with it until all that was on its way before has been answered or was cut off.
void catch_up(Home& home, Guest& target) {
  target->resume();
  // A pause that was longer than the lease has ended the session; the next one begins by itself.
  REQUIRE(eventually([&] {
    return home->put_sync(home.data() + 3 * k_part, target.remote().at(3 * k_part), 8, k_patience).has_value();
  }));
  require_ok(home->get_sync(home.data() + 3 * k_part, target.remote().at(3 * k_part), k_part / 2, k_patience));
}

}  // namespace

TEST_CASE("S4 S5 a get that ran out of time or was cancelled: its buffer is free at once, and stays") {
  Home home(2, "tcp");
  Guest target(home, 1);
  fill_pattern(home.data(), k_part, 1);
  require_ok(home->put_sync(home.data(), target.remote().at(0), k_part, k_patience));
  int in_time = 0;
  for (int round = 0; round < 8; ++round) {
    CAPTURE(round);
    ErrorCode code = ErrorCode::ok;
    std::memset(home.data(), 0x11, k_part);
    target->stop();
    if (round % 2 == 0) {
      code = code_of(home->get_sync(home.data(), target.remote().at(0), k_part, 5ms));
      in_time += code == ErrorCode::deadline_exceeded ? 1 : 0;
    } else {
      auto request = home->get(home.data(), target.remote().at(0), k_part, {.timeout = k_patience});
      if (request) {
        // The question is on its way, at the latest when what was posted behind it is over.
        CHECK_FALSE(home->get_sync(home.data() + k_part, target.remote().at(0), 8, 1ms).has_value());
        require_ok(request->cancel());
      }
      code = request ? code_of(request->wait(k_patience)) : request.error().code;
      in_time += code == ErrorCode::cancelled ? 1 : 0;
    }
    CHECK(code != ErrorCode::ok);
    CHECK(all_are(home.data(), k_part, std::byte{0x11}));  // the target has not run
    std::memset(home.data(), 0x44, k_part);
    catch_up(home, target);
    CHECK(all_are(home.data(), k_part, std::byte{0x44}));
  }
  require_ok(home->get_sync(home.data(), target.remote().at(0), k_part, k_patience));
  CHECK(holds_pattern(home.data(), k_part, 1));
  CHECK(in_time > 0);  // all of them, unless this process itself stood still for a lease
}

TEST_CASE("S5 S42 puts whose answers never come end in their time; what their source holds afterwards goes nowhere") {
  Home home(2, "tcp");
  Guest target(home, 1);
  std::memset(home.data(), 0x11, 2 * k_part);
  target->stop();
  // Together long enough that not all of it fits into what the kernel keeps for a target that does not read.
  auto late = home->put(home.data(), target.remote().at(0), k_part, {.timeout = 20ms});
  auto unwanted = home->put(home.data() + k_part, target.remote().at(k_part), k_part, {.timeout = k_patience});
  require_ok(late);
  require_ok(unwanted);
  require_ok(unwanted->cancel());
  for (auto* request : {&*late, &*unwanted}) {
    // PEER_LOST: the target is alive and could not be asked.
    const ErrorCode own = request == &*late ? ErrorCode::deadline_exceeded : ErrorCode::cancelled;
    const ErrorCode code = code_of(request->wait(k_patience));
    CHECK((code == own || code == ErrorCode::peer_lost));
  }
  std::memset(home.data(), 0x22, 2 * k_part);
  catch_up(home, target);
  std::memset(home.data(), 0x33, 2 * k_part);
  require_ok(home->get_sync(home.data(), target.remote().at(0), 2 * k_part, k_patience));
  CHECK(std::none_of(home.data(), home.data() + 2 * k_part,
                     [](std::byte byte) { return byte == std::byte{0x22} || byte == std::byte{0x33}; }));
  // Neither side keeps anything for them: memory that is lent now goes back at once.
  const auto lent = home->allocate(k_part);
  require_ok(lent);
  require_ok(home->put_sync(lent->data, target.remote().at(0), k_part, k_patience));
  require_ok(home->deregister(*lent, k_patience));
  CHECK(home->counters().held_bytes == 0);
}

TEST_CASE("S24 S42 a target that takes nothing: BUSY when all places are taken, others progress, all ends in time") {
  constexpr std::size_t k_slots = 256;  // options_for()
  Home home(3, "tcp");
  Guest stuck(home, 1);
  Guest other(home, 2);
  std::vector<Request> open;
  const auto post = [&] {
    auto request = home->put(home.data(), stuck.remote().at(0), 4096, {.timeout = 100ms});
    if (request) open.push_back(*request);
    return code_of(request);
  };
  for (int tries = 0; tries < 5; ++tries) {  // again when this process stood still for a lease meanwhile
    stuck->stop();
    while (open.size() < k_slots - 8 && post() == ErrorCode::ok) {
    }
    if (open.size() == k_slots - 8) break;
    open.clear();
    catch_up(home, stuck);
  }
  REQUIRE(open.size() == k_slots - 8);
  for (int i = 0; i < 20; ++i) {
    require_ok(home->put_sync(home.data() + k_part, other.remote().at(0), 100'000, k_patience));
  }
  std::size_t busy = 0;
  for (int i = 0; i < 16; ++i) {
    const ErrorCode code = post();
    REQUIRE((code == ErrorCode::ok || code == ErrorCode::busy || code == ErrorCode::not_exchanged ||
             code == ErrorCode::stale));
    busy += code == ErrorCode::ok ? 0 : 1;
  }
  CHECK(busy > 0);
  for (Request& request : open) {
    const ErrorCode code = code_of(request.wait(k_patience));
    CHECK((code == ErrorCode::deadline_exceeded || code == ErrorCode::peer_lost));
  }
  // All places are free again.
  require_ok(home->quiet(k_patience));
  open.clear();
  for (std::size_t i = 0; i < k_slots; ++i) {
    auto request = home->put(home.data(), other.remote().at(0), 0, {.timeout = k_patience});
    require_ok(request);
    open.push_back(*request);
  }
  CHECK(code_of(home->put(home.data(), other.remote().at(0), 0)) == ErrorCode::busy);
  require_ok(wait_all(open, k_patience));
  catch_up(home, stuck);
  require_traffic_both_ways(home, stuck, 5);
  require_traffic_both_ways(home, other, 6);
}
