// SPDX-License-Identifier: Apache-2.0
//
// The places of a completion queue: none is lost, none is given twice, nobody sleeps through an end, and the descriptor
// is readable exactly while there is something.
#include <poll.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <hixl/completion_queue.hpp>

#include "core/queue_state.hpp"

using namespace hixl;
using namespace hixl::core;

namespace {

constexpr Timeout k_enough = std::chrono::seconds(60);

template <class T>
ErrorCode code(const Result<T>& result) {
  return result ? ErrorCode::ok : result.error().code;
}

bool readable(int fd) {
  pollfd look{fd, POLLIN, 0};
  return ::poll(&look, 1, 0) == 1;
}

struct Queue {
  explicit Queue(std::uint32_t capacity) : state(*QueueState::create(capacity)) {}
  std::uint32_t reserve() {
    const auto place = state->reserve(thread);
    REQUIRE(place);
    return *place;
  }
  void end(std::uint64_t number) { CHECK(state->deliver(reserve(), {.result = {}, .user_data = number})); }
  std::vector<std::uint64_t> take(std::size_t most) {
    std::vector<Completion> out(most);
    out.resize(state->poll(out));
    std::vector<std::uint64_t> numbers;
    for (const Completion& completion : out) numbers.push_back(completion.user_data);
    return numbers;
  }
  std::shared_ptr<QueueState> state;
  std::shared_ptr<runtime::LoopThread> thread =
      std::make_shared<runtime::LoopThread>(std::make_shared<const ForkMark>());
};

}  // namespace

TEST_CASE("queue: a post takes a place, and without one it is BUSY with the limit; no end is lost") {
  CHECK(code(CompletionQueue::create(0)) == ErrorCode::invalid_argument);
  CHECK(code(CompletionQueue::create((1U << 20U) + 1)) == ErrorCode::invalid_argument);
  for (const std::uint32_t capacity : {1U, 2U, 7U, 1000U}) {
    CAPTURE(capacity);
    Queue queue(capacity);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::uint32_t> places;
      for (std::uint32_t i = 0; i < capacity; ++i) places.push_back(queue.reserve());
      const auto refused = queue.state->reserve(queue.thread);
      REQUIRE_FALSE(refused);
      CHECK(refused.error().code == ErrorCode::busy);
      CHECK(refused.error().detail.limit == capacity);
      CHECK(queue.state->in_use() == capacity);
      CHECK(queue.take(4).empty());
      queue.state->give_back(places.back());
      places.back() = queue.reserve();
      for (std::uint32_t i = 0; i < capacity; ++i) {
        CHECK(queue.state->deliver(places[i], {.result = fail(ErrorCode::stale), .user_data = i}));
      }
      CHECK_FALSE(queue.state->reserve(queue.thread));  // not polled yet
      std::vector<std::uint64_t> numbers;
      while (numbers.size() < capacity) {
        for (const std::uint64_t number : queue.take(3)) numbers.push_back(number);
      }
      CHECK(std::ranges::is_sorted(numbers));
      CHECK(numbers.back() == capacity - 1);
      CHECK(queue.state->in_use() == 0);
    }
  }
}

TEST_CASE("queue: the descriptor is readable while there is something, and costs nothing before it is asked for") {
  Queue queue(8);
  queue.end(1);
  const int fd = queue.state->fd();
  CHECK(readable(fd));  // what was there before counts
  queue.end(2);
  queue.end(3);
  CHECK(queue.take(2).size() == 2);
  CHECK(readable(fd));  // not drained
  queue.end(4);
  CHECK(queue.take(1) == std::vector<std::uint64_t>{3});
  CHECK(readable(fd));
  CHECK(queue.take(8) == std::vector<std::uint64_t>{4});
  CHECK_FALSE(readable(fd));
  CHECK(queue.take(8).empty());
  queue.end(5);
  CHECK(readable(fd));
  CHECK(queue.take(1).size() == 1);
  CHECK_FALSE(readable(fd));
}

TEST_CASE("queue: closed while operations are open, it says so and keeps nothing") {
  Queue queue(2);
  const auto place = queue.reserve();
  queue.end(1);
  queue.state->close();
  CHECK_FALSE(queue.state->deliver(place, {}));
}

TEST_CASE("queue: wait refuses what it cannot do, and ends in its time") {
  Queue queue(4);
  std::array<Completion, 2> out;
  CHECK(code(queue.state->wait({}, k_enough)) == ErrorCode::invalid_argument);
  CHECK(code(queue.state->wait(out, Timeout(-1))) == ErrorCode::invalid_argument);
  CHECK(code(queue.state->wait(out, Timeout(0))) == ErrorCode::deadline_exceeded);
  CHECK(code(queue.state->wait(out, std::chrono::milliseconds(2))) == ErrorCode::deadline_exceeded);
  queue.thread->bind_here();
  CHECK(code(queue.state->wait(out, Timeout(0))) == ErrorCode::deadline_exceeded);  // never posted with it
  const auto place = queue.reserve();
  CHECK(code(queue.state->wait(out, k_enough)) == ErrorCode::would_deadlock);
  CHECK(queue.state->deliver(place, {}));
  CHECK(queue.state->wait(out, k_enough).value() == 1);  // at once
  // Of many runtimes too, those that are gone replaced by new ones.
  std::vector<std::shared_ptr<runtime::LoopThread>> threads(9);
  for (auto& thread : threads) {
    thread = std::make_shared<runtime::LoopThread>(std::make_shared<const ForkMark>());
    queue.state->give_back(queue.state->reserve(thread).value());
  }
  queue.thread->unbind();
  CHECK(code(queue.state->wait(out, Timeout(0))) == ErrorCode::deadline_exceeded);
  threads[8]->bind_here();
  CHECK(code(queue.state->wait(out, k_enough)) == ErrorCode::would_deadlock);
  threads[8]->unbind();
  threads.clear();
  const auto again = std::make_shared<runtime::LoopThread>(std::make_shared<const ForkMark>());
  queue.state->give_back(queue.state->reserve(again).value());
  CHECK(code(queue.state->wait(out, Timeout(0))) == ErrorCode::deadline_exceeded);
  again->bind_here();
  CHECK(code(queue.state->wait(out, k_enough)) == ErrorCode::would_deadlock);
}

TEST_CASE("queue: many loops and pollers, each end taken once, and in its loop's order") {
  constexpr std::size_t k_loops = 3;
  constexpr std::size_t k_pollers = 3;
  constexpr std::uint64_t k_each = 20'000;
  Queue queue(16);
  const int fd = queue.state->fd();
  std::vector<std::atomic<int>> taken(k_loops * k_each);
  std::atomic<std::uint64_t> left{k_loops * k_each};
  std::atomic<int> faults{0};
  std::vector<std::thread> threads;
  for (std::size_t loop = 0; loop < k_loops; ++loop) {
    threads.emplace_back([&, loop] {
      for (std::uint64_t i = 0; i < k_each; ++i) {
        auto place = queue.state->reserve(queue.thread);
        while (!place) {
          std::this_thread::yield();
          place = queue.state->reserve(queue.thread);
        }
        if (!queue.state->deliver(*place, {.result = {}, .user_data = loop * k_each + i})) faults.fetch_add(1);
      }
    });
  }
  for (std::size_t poller = 0; poller < k_pollers; ++poller) {
    threads.emplace_back([&, poller] {
      std::array<Completion, 5> out;
      while (left.load() > 0) {
        std::size_t count = 0;
        if (poller == 0) {  // by the descriptor; the short time is for the last end, which may be another's
          pollfd look{fd, POLLIN, 0};
          ::poll(&look, 1, 20);
          count = queue.state->poll(std::span(out).first(2));
        } else {
          const auto waited =
              queue.state->wait(std::span(out).first(poller == 1 ? 1 : 5), std::chrono::milliseconds(20));
          if (!waited && code(waited) != ErrorCode::deadline_exceeded) faults.fetch_add(1);
          count = waited.value_or(0);
        }
        std::array<std::uint64_t, k_loops> last{};
        for (const Completion& completion : std::span(out).first(count)) {
          const std::uint64_t number = completion.user_data;
          taken[number].fetch_add(1);
          std::uint64_t& before = last[number / k_each];
          if (before > number) faults.fetch_add(1);
          before = number;
        }
        left.fetch_sub(count);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(faults == 0);
  for (const auto& count : taken) CHECK(count == 1);
  CHECK(queue.state->in_use() == 0);
  CHECK(queue.take(5).empty());
  CHECK_FALSE(readable(fd));
}

TEST_CASE("P53: nobody sleeps through an end that comes when it is about to sleep") {
  // One place: every end meets an empty queue and a poller on its way to sleep. A lost wake-up is a wait for 60 s.
  constexpr int k_rounds = 20'000;
  for (const bool by_descriptor : {false, true}) {
    CAPTURE(by_descriptor);
    Queue queue(1);
    const int fd = by_descriptor ? queue.state->fd() : -1;
    std::thread loop([&] {
      for (int i = 0; i < k_rounds; ++i) {
        auto place = queue.state->reserve(queue.thread);
        // Without yielding, so that it meets the poller in the very moment in which that has emptied the queue.
        for (int tries = 1; !place; ++tries) {
          if (tries % 1000 == 0) std::this_thread::yield();
          place = queue.state->reserve(queue.thread);
        }
        static_cast<void>(queue.state->deliver(*place, {}));
      }
    });
    std::array<Completion, 1> out;
    int taken = 0;
    bool slept_through = false;
    while (taken < k_rounds && !slept_through) {
      if (by_descriptor) {
        pollfd look{fd, POLLIN, 0};
        slept_through = ::poll(&look, 1, 60'000) == 0;
        taken += static_cast<int>(queue.state->poll(out));
      } else {
        const auto waited = queue.state->wait(out, k_enough);
        slept_through = !waited;
        taken += static_cast<int>(waited.value_or(0));
      }
    }
    CHECK_FALSE(slept_through);
    while (taken < k_rounds) {  // so that the other thread comes to its end
      taken += static_cast<int>(queue.state->poll(out));
      std::this_thread::yield();
    }
    loop.join();
  }
}
