// SPDX-License-Identifier: Apache-2.0
//
// The value of an atomic by every way to learn of an end; its cancel, its deadline, its place among fences and flushes;
// and the sync forms where no thread may wait.
#include <algorithm>
#include <array>
#include <set>

#include <hixl/completion_queue.hpp>

#include "wait_parts.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::uint64_t k_word = 64;

/// What the word holds, by an atomic that changes nothing.
std::uint64_t look(WaitPair& pair) {
  const auto value = pair.world[0].fetch_add_sync(pair.remote.at(k_word), 0, k_patience);
  require_ok(value);
  return *value;
}

Detached add_twice(WaitPair& pair, std::vector<Result<std::uint64_t>>& values, Events& events) {
  auto first = pair.world[0].fetch_add(pair.remote.at(k_word), 5);
  const Result<void> ended = co_await *first;
  values.push_back(ended ? first->value() : fail(ended.error()));
  // On the loop thread now.
  auto second = pair.world[0].compare_swap(pair.remote.at(k_word), 5, 50);
  static_cast<void>(co_await *second);
  values.push_back(second->value());
  events.add();
}

}  // namespace

TEST_CASE("an atomic's value comes by co_await, then(), wait_all and a queue, each once") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    WaitPair pair(links);
    Runtime& runtime = pair.world[0];
    const RemoteAddress word = pair.remote.at(k_word);

    std::vector<Result<std::uint64_t>> values;
    Events told;
    add_twice(pair, values, told);
    REQUIRE(told.wait_for(1));
    REQUIRE(values.size() == 2);
    CHECK(values[0] == 0U);
    CHECK(values[1] == 5U);

    // A callback that is given while it is under way, or after it has ended.
    for (const bool late : {false, true}) {
      CAPTURE(late);
      Noted noted;
      auto request = runtime.swap(word, 7);
      require_ok(request);
      if (late) require_ok(runtime.flush(1, k_patience));
      require_ok(request->then(noted.callback()));
      REQUIRE(noted.events.wait_for(1));
      require_ok(noted.completion.result);
      CHECK(noted.completion.value == (late ? 7 : 50));
      CHECK(noted.completion.bytes == 8);
      CHECK(noted.elsewhere);
      if (late) CHECK(request->value() == 7U);  // this Request has seen that end
    }

    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 20; ++i) requests.push_back(*runtime.fetch_add(word, 1));
    require_ok(wait_all(requests, k_patience));
    std::set<std::uint64_t> seen;
    for (Request& request : requests) seen.insert(*request.value());
    CHECK(seen.size() == 20);
    CHECK(*seen.begin() == 7);
    CHECK(*seen.rbegin() == 26);

    auto queue = *CompletionQueue::create(32);
    for (std::uint64_t i = 0; i < 20; ++i)
      require_ok(runtime.fetch_add(word, 1, {.user_data = i, .queue = queue.get()}));
    std::set<std::uint64_t> numbers;
    std::array<Completion, 8> out;
    while (numbers.size() < 20) {
      const auto count = queue->wait(out, k_patience);
      require_ok(count);
      for (const Completion& completion : std::span(out).first(*count)) {
        require_ok(completion.result);
        CHECK(numbers.insert(completion.user_data).second);
        CHECK(seen.insert(completion.value).second);
      }
    }
    CHECK(*seen.rbegin() == 46);
    CHECK(look(pair) == 47);
  }
}

TEST_CASE("F94: a cancelled atomic has been executed and has its value, or is CANCELLED and never will be") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    WaitPair pair(links);
    Runtime& runtime = pair.world[0];
    std::uint64_t done = 0;
    std::set<std::uint64_t> seen;
    const int count = rounds(400);
    for (int round = 0; round < count; ++round) {
      std::vector<Request> requests;
      for (int i = 0; i < 3; ++i) requests.push_back(*runtime.fetch_add(pair.remote.at(k_word), 1));
      if (round % 2 == 0) static_cast<void>(requests[1].done());
      for (Request& request : requests) require_ok(request.cancel());
      for (Request& request : requests) {
        const auto ended = request.wait(k_patience);
        if (!ended) {
          REQUIRE(name(code_of(ended)) == "CANCELLED");
          CHECK(code_of(request.value()) == ErrorCode::cancelled);
          continue;
        }
        done += 1;
        CHECK(seen.insert(*request.value()).second);
      }
    }
    CHECK(look(pair) == done);
    if (!seen.empty()) CHECK(*seen.rbegin() == done - 1);
  }
}

TEST_CASE("an atomic without time is over before it begins; a negative time is an error; neither changes the word") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    WaitPair pair(links);
    Runtime& runtime = pair.world[0];
    const RemoteAddress word = pair.remote.at(k_word);
    CHECK(code_of(runtime.fetch_add_sync(word, 1, Timeout(0))) == ErrorCode::deadline_exceeded);
    auto request = runtime.swap(word, 1, {.timeout = Timeout(0)});
    require_ok(request);
    CHECK(code_of(request->wait()) == ErrorCode::deadline_exceeded);
    CHECK(code_of(request->value()) == ErrorCode::deadline_exceeded);
    CHECK(code_of(runtime.compare_swap_sync(word, 0, 1, Timeout(-5))) == ErrorCode::invalid_argument);
    CHECK(code_of(runtime.fetch_add(word, 1, {.timeout = Timeout(-5)})) == ErrorCode::invalid_argument);
    CHECK(look(pair) == 0);
  }
}

TEST_CASE("S7: fences and flushes order atomics as they do everything else") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    WaitPair pair(links);
    Runtime& runtime = pair.world[0];
    const RemoteAddress word = pair.remote.at(0);
    const std::uint64_t ones = ~std::uint64_t{0};
    std::fill_n(pair.a.data, k_wait_bytes, std::byte{0xff});
    for (std::uint64_t round = 0; round < static_cast<std::uint64_t>(rounds(30)); ++round) {
      // The atomic finds what the put brings, and the next put comes after the atomic.
      require_ok(runtime.put(pair.a.data, word, k_wait_bytes / 2));
      require_ok(runtime.fence(1));
      auto add = runtime.fetch_add(word, 1 + round);
      require_ok(runtime.fence(1));
      auto swapped = runtime.swap(word, 3);
      require_ok(runtime.flush(1, k_patience));
      CHECK(add->done());
      CHECK(swapped->done());
      CHECK(add->value() == ones);
      CHECK(swapped->value() == round);
    }
    require_ok(runtime.quiet(k_patience));
  }
}

TEST_CASE("a sync atomic in a callback: by the lane at once, else WOULD_DEADLOCK and nothing has changed") {
  for (const auto& links : {std::vector{LinkKind::hccs}, std::vector{LinkKind::tcp}}) {
    CAPTURE(text(links));
    WaitPair pair(links);
    struct Inside {
      WaitPair& pair;
      Result<std::uint64_t> value{};
      Events events{};
    } inside{pair};
    require_ok(pair.world[0].put_sync(pair.a.data, pair.remote.at(0), 8));  // the lane is open
    require_ok(pair.world[0].put(pair.a.data, pair.remote.at(0), 8,
                                 {.callback = {[](void* context, const Completion&) {
                                                 auto& at = *static_cast<Inside*>(context);
                                                 at.value =
                                                     at.pair.world[0].fetch_add_sync(at.pair.remote.at(k_word), 1);
                                                 at.events.add();
                                               },
                                               &inside}}));
    REQUIRE(inside.events.wait_for(1));
    const bool lane = links.front() == LinkKind::hccs;
    CHECK(code_of(inside.value) == (lane ? ErrorCode::ok : ErrorCode::would_deadlock));
    CHECK(look(pair) == (lane ? 1 : 0));
  }
}
