// SPDX-License-Identifier: Apache-2.0
//
// Requests on their table, one thread at a time and then many: exactly one end each, seen once, whatever is copied,
// dropped, waited for or outlives the runtime.
#include "runtime/request_table.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "fake_port.hpp"
#include "runtime/loop.hpp"

using namespace hixl;
using namespace hixl::runtime;

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Only ever bounds a wait for something that is going to happen.
constexpr Timeout k_enough = seconds(60);

struct Posted {
  std::uint32_t slot = 0;
  Request request;
};

Posted post(RequestTable& table) {
  const Result<RequestTable::Acquired> acquired = table.acquire();
  REQUIRE(acquired);
  return {acquired->slot, Request(table, acquired->slot, acquired->generation)};
}

Result<void> lost(std::uint64_t mark) { return fail(ErrorCode::peer_lost, {.rank = 3, .address = mark}); }

ErrorCode code(const Result<void>& result) { return result ? ErrorCode::ok : result.error().code; }

}  // namespace

TEST_CASE("request: pending, then its result for ever") {
  RequestTable table(4, nullptr);
  Posted op = post(table);
  CHECK(table.in_use() == 1);
  CHECK_FALSE(op.request.done());
  CHECK(code(op.request.query()) == ErrorCode::busy);
  table.finish(op.slot, {}, false);
  CHECK(table.in_use() == 1);
  CHECK(op.request.query().has_value());
  CHECK(table.in_use() == 0);
  for (int i = 0; i < 10; ++i) table.finish(post(table).slot, {}, false);  // other lives of the slot
  CHECK(op.request.done());
  CHECK(op.request.query().has_value());
  CHECK(op.request.wait().has_value());
  CHECK_FALSE(op.request.empty());
  CHECK(table.failed_unseen() == 0);
}

TEST_CASE("request: an error comes with its numbers, and does not stain the next life") {
  RequestTable table(1, nullptr);
  Posted op = post(table);
  table.finish(op.slot, lost(77), false);
  for (int i = 0; i < 2; ++i) {
    const Result<void> result = op.request.query();
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == ErrorCode::peer_lost);
    CHECK(result.error().detail.rank == 3);
    CHECK(result.error().detail.address == 77);
  }
  Posted next = post(table);
  table.finish(next.slot, {}, false);
  CHECK(next.request.query().has_value());
  CHECK(code(op.request.query()) == ErrorCode::peer_lost);
  CHECK(table.failed_unseen() == 0);
}

TEST_CASE("request: an empty one is invalid and never blocks") {
  Request request;
  CHECK(request.empty());
  CHECK(request.done());
  CHECK(code(request.query()) == ErrorCode::invalid_request);
  CHECK(code(request.wait()) == ErrorCode::invalid_request);
}

TEST_CASE("request: no free slot is BUSY and names the limit") {
  for (const std::uint32_t slots : {1U, 3U, 64U, 200U, 5000U}) {
    CAPTURE(slots);
    RequestTable table(slots, nullptr);
    std::vector<Posted> ops;
    for (std::uint32_t i = 0; i < slots; ++i) ops.push_back(post(table));
    CHECK(table.in_use() == slots);
    const Result<RequestTable::Acquired> refused = table.acquire();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == ErrorCode::busy);
    CHECK(refused.error().detail.limit == slots);
    table.finish(ops.back().slot, {}, false);
    CHECK_FALSE(table.acquire());
    CHECK(ops.back().request.done());
    const Result<RequestTable::Acquired> granted = table.acquire();
    REQUIRE(granted);
    table.abandon(granted->slot);
    CHECK(table.in_use() == slots - 1);
    for (Posted& op : ops) {
      if (!op.request.done()) table.finish(op.slot, {}, false);
    }
    ops.clear();
    CHECK(table.in_use() == 0);
  }
}

TEST_CASE("request: the first copy that looks has the end, the others are invalid") {
  RequestTable table(1, nullptr);
  Posted op = post(table);
  Request second = op.request;
  Request third = second;
  Request stale = second;
  table.finish(op.slot, lost(1), false);
  CHECK(code(second.query()) == ErrorCode::peer_lost);
  CHECK(table.in_use() == 0);
  CHECK(code(op.request.query()) == ErrorCode::invalid_request);  // freed
  Request of_seen = second;
  CHECK(code(of_seen.query()) == ErrorCode::peer_lost);  // a copy of one that remembers, remembers
  Request of_stale = stale;

  Posted next = post(table);  // the slot's next life
  CHECK(code(third.query()) == ErrorCode::invalid_request);
  CHECK(code(third.query()) == ErrorCode::invalid_request);
  CHECK(code(of_stale.query()) == ErrorCode::invalid_request);
  { const Request dropped = std::move(stale); }
  CHECK(code(next.request.query()) == ErrorCode::busy);  // and not harmed by any of them
  table.finish(next.slot, {}, false);
  CHECK(next.request.query().has_value());
  CHECK(table.failed_unseen() == 0);
}

TEST_CASE("request: moving and assigning keep the count right") {
  RequestTable table(2, nullptr);
  Posted a = post(table);
  Posted b = post(table);
  Request moved = std::move(a.request);
  CHECK(a.request.empty());
  Request& same = moved;
  moved = same;
  CHECK(code(moved.query()) == ErrorCode::busy);
  moved = b.request;  // drops a
  table.finish(a.slot, {}, false);
  CHECK(table.in_use() == 1);
  swap(moved, a.request);
  table.finish(b.slot, {}, false);
  moved = std::move(a.request);
  CHECK(moved.query().has_value());
  CHECK(table.in_use() == 0);
}

TEST_CASE("request: a dropped one frees itself, and a failure of it is counted") {
  RequestTable table(2, nullptr);
  SUBCASE("dropped before the end") {
    for (int i = 0; i < 3; ++i) {
      const std::uint32_t slot = post(table).slot;
      CHECK(table.in_use() == 1);
      table.finish(slot, i == 0 ? Result<void>{} : lost(1), false);
      CHECK(table.in_use() == 0);
    }
  }
  SUBCASE("dropped after the end") {
    for (int i = 0; i < 3; ++i) {
      Posted op = post(table);
      const Request copy = op.request;
      table.finish(op.slot, i == 0 ? Result<void>{} : lost(1), false);
      op.request = Request();
      CHECK(table.in_use() == 1);
    }
    CHECK(table.in_use() == 0);
  }
  CHECK(table.failed_unseen() == 2);
}

TEST_CASE("request: an end that a callback has seen") {
  RequestTable table(2, nullptr);
  const std::uint32_t slot = post(table).slot;
  table.finish(slot, lost(1), true);
  CHECK(table.in_use() == 0);

  Posted held = post(table);
  table.finish(held.slot, lost(2), true);
  CHECK(code(held.request.query()) == ErrorCode::peer_lost);
  CHECK(table.in_use() == 0);

  {
    Posted dropped = post(table);
    table.finish(dropped.slot, lost(3), true);
    CHECK(table.in_use() == 1);
  }
  CHECK(table.in_use() == 0);
  CHECK(table.failed_unseen() == 0);
}

TEST_CASE("request: wait ends with its timeout, the operation does not") {
  RequestTable table(1, nullptr);
  Posted op = post(table);
  CHECK(code(op.request.wait(milliseconds(1))) == ErrorCode::deadline_exceeded);
  CHECK(code(op.request.wait(Timeout(0))) == ErrorCode::deadline_exceeded);
  CHECK(code(op.request.query()) == ErrorCode::busy);
  table.finish(op.slot, {}, false);
  CHECK(op.request.wait(Timeout(0)).has_value());
}

TEST_CASE("request: waiting on the loop's thread would deadlock, unless it has ended") {
  test::FakePort port;
  Loop loop(port, 1, 10);
  RequestTable table(2, &loop);
  CHECK_FALSE(table.would_deadlock());
  loop.bind_to_this_thread();
  CHECK(table.would_deadlock());
  std::array<Request, 2> requests;
  std::array<std::uint32_t, 2> slots{};
  for (std::size_t i = 0; i < 2; ++i) {
    Posted op = post(table);
    slots[i] = op.slot;
    requests[i] = std::move(op.request);
  }
  CHECK(code(requests[0].wait()) == ErrorCode::would_deadlock);
  CHECK(code(wait_all(requests)) == ErrorCode::would_deadlock);
  CHECK(wait_any(requests).error().code == ErrorCode::would_deadlock);
  table.finish(slots[1], {}, false);
  CHECK(wait_any(requests).value() == 1);
  table.finish(slots[0], {}, false);
  CHECK(requests[0].wait().has_value());
}

TEST_CASE("wait_all: waits for every end, gives the first error in order") {
  RequestTable table(4, nullptr);
  std::array<Request, 5> requests;  // the last stays empty
  std::array<std::uint32_t, 4> slots{};
  for (std::size_t i = 0; i < 4; ++i) {
    Posted op = post(table);
    slots[i] = op.slot;
    requests[i] = std::move(op.request);
  }
  table.finish(slots[3], lost(3), false);
  CHECK(code(wait_all(requests, milliseconds(1))) == ErrorCode::deadline_exceeded);
  table.finish(slots[1], lost(1), false);
  std::thread loop([&] {
    table.finish(slots[0], {}, false);
    table.finish(slots[2], {}, false);
  });
  const Result<void> result = wait_all(requests, k_enough);
  loop.join();
  REQUIRE_FALSE(result);
  CHECK(result.error().detail.address == 1);
  CHECK(requests[0].query().has_value());
  CHECK(requests[3].query().error().detail.address == 3);
  CHECK(wait_all({}).has_value());
}

TEST_CASE("wait_any: the one that ended") {
  RequestTable table(4, nullptr);
  RequestTable other_table(4, nullptr);
  CHECK(wait_any({}).error().code == ErrorCode::invalid_argument);
  for (const bool mixed : {false, true}) {
    CAPTURE(mixed);
    std::array<Request, 3> requests;
    std::array<std::uint32_t, 3> slots{};
    for (std::size_t i = 0; i < 3; ++i) {
      Posted op = post(mixed && i == 2 ? other_table : table);
      slots[i] = op.slot;
      requests[i] = std::move(op.request);
    }
    CHECK(wait_any(requests, milliseconds(3)).error().code == ErrorCode::deadline_exceeded);
    CHECK(wait_any(requests, Timeout(0)).error().code == ErrorCode::deadline_exceeded);
    std::thread loop([&] { (mixed ? other_table : table).finish(slots[2], lost(9), false); });
    CHECK(wait_any(requests, k_enough).value() == 2);
    loop.join();
    CHECK(code(requests[2].query()) == ErrorCode::peer_lost);
    table.finish(slots[0], {}, false);
    table.finish(slots[1], {}, false);
  }
}

TEST_CASE("request: every waiter wakes; one has the result") {
  constexpr int k_waiters = 8;
  RequestTable table(2, nullptr);
  for (int round = 0; round < 200; ++round) {
    Posted op = post(table);
    std::latch ready(k_waiters + 1);
    std::atomic<int> had_it{0};
    std::atomic<int> invalid{0};
    std::vector<std::thread> waiters;
    for (int i = 0; i < k_waiters; ++i) {
      waiters.emplace_back([&, copy = op.request]() mutable {
        ready.arrive_and_wait();
        const ErrorCode end = code(copy.wait(k_enough));
        if (end == ErrorCode::peer_lost) had_it.fetch_add(1);
        if (end == ErrorCode::invalid_request) invalid.fetch_add(1);
      });
    }
    op.request = Request();
    ready.arrive_and_wait();
    if (round % 2 == 0) std::this_thread::yield();
    table.finish(op.slot, lost(1), false);
    for (std::thread& waiter : waiters) waiter.join();
    CHECK(had_it == 1);
    CHECK(invalid == k_waiters - 1);
    CHECK(table.in_use() == 0);
  }
}
