// SPDX-License-Identifier: Apache-2.0
//
// Requests from many threads, and requests that outlive their runtime. Made for the race checkers, and exact without.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "fake_port.hpp"
#include "runtime/loop.hpp"
#include "runtime/request_table.hpp"

using namespace hixl;
using namespace hixl::runtime;

namespace {

constexpr Timeout k_enough = std::chrono::seconds(60);

ErrorCode code(const Result<void>& result) { return result ? ErrorCode::ok : result.error().code; }

std::uint64_t mark_of(std::uint32_t slot, std::uint32_t generation) {
  return (std::uint64_t{generation} << 32U) | slot;
}

/// Ends every operation that is mailed to it: every third fails, with its own mark in the error.
class Ender final : public MailTarget {
 public:
  explicit Ender(RequestTable& table) : table_(table) {}
  void on_mail(const Mail& mail) override {
    const bool failed = mail.b % 3 == 0;
    table_.finish(mail.a, failed ? Result<void>(fail(ErrorCode::peer_lost, {.address = mail.b})) : Result<void>{},
                  mail.kind == 1);
    ++ended;
  }
  std::uint64_t ended = 0;

 private:
  RequestTable& table_;
};

/// One program thread: posts, then treats each request in one of the ways a program may.
class Poster {
 public:
  Poster(RequestTable& table, Mailbox& mailbox, Ender& ender, std::uint64_t seed)
      : table_(table), mailbox_(mailbox), ender_(ender), random_(seed) {}

  void run(int operations) {
    for (int i = 0; i < operations; ++i) one();
    for (Request& request : kept_) request = Request();
  }

  std::uint64_t posted = 0;
  std::uint64_t failed_dropped_max = 0;  // failures that may have ended unseen
  std::uint64_t faults = 0;

 private:
  void one() {
    Result<RequestTable::Acquired> acquired = table_.acquire();
    while (!acquired) {
      if (acquired.error().code != ErrorCode::busy) ++faults;
      kept_[random_.below(kept_.size())] = Request();
      std::this_thread::yield();
      acquired = table_.acquire();
    }
    mark_ = mark_of(acquired->slot, acquired->generation);
    Request request(table_, acquired->slot, acquired->generation);
    const bool callback = random_.chance(200);
    while (!mailbox_.post({&ender_, callback ? 1U : 0U, acquired->slot, mark_})) std::this_thread::yield();
    ++posted;
    treat(std::move(request), callback);
  }

  void treat(Request request, bool callback) {
    switch (random_.below(6)) {
      case 0:
        check(request.wait(k_enough));
        check(request.query());
        break;
      case 1: {
        Result<void> result = request.query();
        for (; code(result) == ErrorCode::busy; result = request.query()) std::this_thread::yield();
        check(result);
        break;
      }
      case 2:  // dropped
        if (mark_ % 3 == 0 && !callback) ++failed_dropped_max;
        break;
      case 3: {  // two copies: one sees the end, the other is invalid from then on
        Request copy = request;
        check(copy.wait(k_enough));
        if (code(request.wait(k_enough)) != ErrorCode::invalid_request) ++faults;
        break;
      }
      case 4: {  // a copy stays behind, stale after this
        kept_[random_.below(kept_.size())] = request;
        check(request.wait(k_enough));
        break;
      }
      case 5: {
        std::array<Request, 2> both = {Request(), request};
        swap(both[0], request);
        if (!wait_any(both, k_enough)) ++faults;
        if (code(both[0].query()) == code(both[1].query())) ++faults;
        break;
      }
    }
  }
  void check(const Result<void>& result) {
    const bool right = mark_ % 3 == 0 ? !result && result.error().detail.address == mark_ : result.has_value();
    if (!right) ++faults;
  }

  RequestTable& table_;
  Mailbox& mailbox_;
  Ender& ender_;
  Random random_;
  std::uint64_t mark_ = 0;
  std::array<Request, 4> kept_;
};

}  // namespace

TEST_CASE("request: sixteen threads post, look, wait, copy and drop while the loop ends their operations") {
  constexpr std::size_t k_threads = 16;
  constexpr int k_operations = 3000;
  for (const std::uint32_t slots : {8U, 2048U}) {
    CAPTURE(slots);
    test::FakePort port;
    RequestTable table(slots, nullptr);
    Mailbox mailbox(port, slots);
    Ender ender(table);
    std::vector<Poster> posters;
    for (std::size_t i = 0; i < k_threads; ++i) posters.emplace_back(table, mailbox, ender, 100 + i);
    std::vector<std::thread> threads;
    for (Poster& poster : posters) threads.emplace_back([&poster] { poster.run(k_operations); });
    while (ender.ended < k_threads * k_operations) {
      if (mailbox.drain(64) == 0) std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
    std::uint64_t unseen_max = 0;
    for (const Poster& poster : posters) {
      CHECK(poster.faults == 0);
      CHECK(poster.posted == k_operations);
      unseen_max += poster.failed_dropped_max;
    }
    CHECK(table.in_use() == 0);
    CHECK(table.failed_unseen() == unseen_max);
  }
}

TEST_CASE("request: threads that acquire at once share the slots exactly") {
  constexpr std::size_t k_threads = 8;
  constexpr std::uint32_t k_slots = 5000;
  RequestTable table(k_slots, nullptr);
  std::vector<std::atomic<int>> taken(k_slots);
  std::atomic<std::uint32_t> total{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < k_threads; ++i) {
    threads.emplace_back([&] {
      for (auto acquired = table.acquire(); acquired; acquired = table.acquire()) {
        taken[acquired->slot].fetch_add(1);
        total.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(total == k_slots);
  for (const std::atomic<int>& count : taken) CHECK(count == 1);
  CHECK(table.in_use() == k_slots);
}

TEST_CASE("retire: without requests the table goes at once") {
  test::FakePort port;
  Loop loop(port, 1, 10);
  const long before = loop.thread().use_count();
  auto table = std::make_unique<RequestTable>(10, &loop);
  CHECK(loop.thread().use_count() == before + 1);
  table->finish(table->acquire().value().slot, {}, false);
  // The raw reference of that acquire: dropped, so that nothing is held.
  table->drop_reference(0, 1);
  RequestTable::retire(std::move(table));
  CHECK(loop.thread().use_count() == before);
}

TEST_CASE("retire: requests keep their results, and the last one takes the table along") {
  test::FakePort port;
  auto loop = std::make_unique<Loop>(port, 1, 10);
  const std::shared_ptr<LoopThread> thread = loop->thread();
  auto table = std::make_unique<RequestTable>(8, loop.get());
  loop->bind_to_this_thread();
  const auto post = [&] {
    const RequestTable::Acquired acquired = table->acquire().value();
    return std::pair(acquired.slot, Request(*table, acquired.slot, acquired.generation));
  };
  auto [ended_slot, ended] = post();
  auto [dropped_slot, dropped] = post();
  auto [copied_slot, copied] = post();
  auto [pending_slot, pending] = post();
  Request stale = copied;
  table->finish(ended_slot, fail(ErrorCode::peer_lost, {.address = 5}), false);
  table->finish(dropped_slot, {}, false);
  table->finish(copied_slot, {}, false);
  CHECK(copied.query().has_value());  // `stale` is a stray in its own slot
  auto [again_slot, again] = post();  // and, with this, perhaps one of the table
  table->finish(again_slot, {}, false);
  Request again_copy = again;

  RequestTable::retire(std::move(table));
  loop.reset();
  CHECK(thread.use_count() == 2);
  dropped = Request();
  Request late_copy = ended;
  CHECK(code(ended.wait()) == ErrorCode::peer_lost);
  CHECK(ended.query().error().detail.address == 5);
  CHECK(code(late_copy.query()) == ErrorCode::invalid_request);
  CHECK(code(pending.wait()) == ErrorCode::stopped);
  CHECK(code(stale.query()) == ErrorCode::invalid_request);
  CHECK(thread.use_count() == 2);
  again = Request();
  CHECK(again_copy.query().has_value());
  CHECK(thread.use_count() == 1);
}

TEST_CASE("retire: while threads look, wait, copy and drop") {
  constexpr int k_threads = 4;
  test::FakePort port;
  Loop loop(port, 1, 10);
  const long before = loop.thread().use_count();
  for (int round = 0; round < 300; ++round) {
    auto table = std::make_unique<RequestTable>(k_threads + 1, &loop);
    std::array<std::uint32_t, k_threads> slots{};
    std::latch ready(k_threads + 1);
    std::atomic<int> faults{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < k_threads; ++i) {
      const RequestTable::Acquired acquired = table->acquire().value();
      slots[static_cast<std::size_t>(i)] = acquired.slot;
      threads.emplace_back([&, i, request = Request(*table, acquired.slot, acquired.generation)]() mutable {
        Request copy = request;
        ready.arrive_and_wait();
        if (i % 4 == 0 && code(request.wait(k_enough)) != ErrorCode::stopped) faults.fetch_add(1);
        if (i % 4 == 1) request = Request();
        if (i % 4 == 2) {
          const Request third = copy;
          copy = Request();
          if (!request.wait(k_enough)) faults.fetch_add(1);
        }
        if (i % 4 == 3) {
          Result<void> result = request.query();
          for (; code(result) == ErrorCode::busy; result = request.query()) std::this_thread::yield();
        }
      });
    }
    ready.arrive_and_wait();
    table->finish(slots[2], {}, false);
    if (round % 2 == 0) table->finish(slots[3], {}, false);
    RequestTable::retire(std::move(table));
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    CHECK(faults == 0);
    CHECK(loop.thread().use_count() == before);
  }
}
