// SPDX-License-Identifier: Apache-2.0
//
// The gate to a lane while fences and flushes are open, and the order in which operations were posted.
#include "memory/lane_gate.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <thread>

#include "memory/posting_order.hpp"

using namespace hixl::memory;

namespace {

// The gate hands them out and never looks at them.
alignas(64) std::array<std::byte, 64> memory_of_nobody;
Lane& some_lane() { return *reinterpret_cast<Lane*>(memory_of_nobody.data()); }
SignalBell& some_bell() { return *reinterpret_cast<SignalBell*>(memory_of_nobody.data()); }

}  // namespace

TEST_CASE("F110: nobody enters a lane while a fence or flush is open; who is inside may finish") {
  LaneGate gate;
  CHECK_FALSE(gate.enter());
  gate.open(some_lane(), some_bell());
  CHECK(gate.is_open());
  REQUIRE(gate.enter());
  REQUIRE(gate.begin_order(2));
  REQUIRE(gate.begin_order(2));
  CHECK_FALSE(gate.begin_order(2));  // the limit, and it counts as nothing
  CHECK_FALSE(gate.is_open());
  CHECK_FALSE(gate.enter());
  CHECK_FALSE(gate.idle());
  gate.leave();
  CHECK(gate.idle());  // an open fence is nobody inside
  gate.end_order();
  CHECK_FALSE(gate.enter());
  gate.end_order();
  CHECK(gate.enter());
  gate.leave();
  // Closed and opened again meanwhile, as when a link breaks.
  REQUIRE(gate.begin_order(2));
  gate.close();
  CHECK(gate.idle());
  gate.open(some_lane(), some_bell());
  CHECK_FALSE(gate.enter());
  gate.close();
  gate.end_order();
  CHECK_FALSE(gate.enter());
  CHECK(gate.idle());
}

TEST_CASE("places: behind every fence that had begun, before every other, whichever thread asks") {
  PostingOrder order;
  CHECK(order.all_sent(0) == 0);
  const auto before = order.place_of_transfer();
  const auto first = order.begin();
  const auto between = order.place_of_transfer();
  CHECK(order.all_sent(0) == 0);  // on its way, perhaps
  order.sent();
  CHECK(order.all_sent(0) == 1);
  const auto second = order.begin();
  const auto after = order.place_of_transfer();
  CHECK(before < first);
  CHECK(first < between);
  CHECK(between < second);
  CHECK(second < after);
  CHECK(order.all_sent(1) == 1);

  // Numbers stay different, and what was counted as sent is never more than what had begun.
  PostingOrder shared;
  std::atomic<std::uint64_t> sum{0};
  std::array<std::thread, 4> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (int i = 0; i < 2000; ++i) {
        sum += (shared.begin() + 1) / 2;
        shared.sent();
      }
    });
  }
  for (std::uint64_t known = 0; known < 8000;) {
    const std::uint64_t sent = shared.all_sent(known);
    REQUIRE(sent >= known);
    REQUIRE(2 * sent <= shared.place_of_transfer());
    known = sent;
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(sum == 8000ULL * 8001 / 2);
}
