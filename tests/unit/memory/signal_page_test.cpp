// SPDX-License-Identifier: Apache-2.0
//
// Waiting for a signal word: no wake-up is lost, and a wait ends by word, time or close.
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "memory/signal_page.hpp"

using namespace hixl;
using namespace hixl::memory;
using namespace std::chrono_literals;

namespace {

struct Words {
  std::unique_ptr<SignalPage> page;
  alignas(64) std::uint64_t there = 0;
  alignas(64) std::uint64_t back = 0;

  explicit Words(std::chrono::nanoseconds recheck = k_recheck) : page(std::move(*SignalPage::create(recheck))) {}
  [[nodiscard]] static std::byte* bytes(std::uint64_t& word) { return reinterpret_cast<std::byte*>(&word); }
  [[nodiscard]] Result<std::uint64_t> wait(std::uint64_t& word, Compare compare, std::uint64_t value,
                                           std::chrono::nanoseconds timeout, std::chrono::nanoseconds spin = 0ns) {
    return page->wait(host_device(), bytes(word), compare, value, timeout, spin);
  }
};

}  // namespace

TEST_CASE("comparisons") {
  CHECK(holds(3, Compare::equal, 3));
  CHECK(!holds(4, Compare::equal, 3));
  CHECK(holds(4, Compare::not_equal, 3));
  CHECK(!holds(3, Compare::not_equal, 3));
  CHECK(holds(4, Compare::greater_equal, 3));
  CHECK(holds(3, Compare::greater_equal, 3));
  CHECK(!holds(2, Compare::greater_equal, 3));
  CHECK(holds(~std::uint64_t{0}, Compare::greater_equal, 3));
}

TEST_CASE("a word that holds already ends the wait, whatever the time allowed") {
  Words words;
  words.there = 7;
  CHECK(*words.wait(words.there, Compare::equal, 7, 0ns) == 7);
  CHECK(*words.wait(words.there, Compare::equal, 7, -1ns) == 7);
}

TEST_CASE("time allowed ends the wait") {
  Words words;
  CHECK(words.wait(words.there, Compare::equal, 1, 0ns).error().code == ErrorCode::deadline_exceeded);
  CHECK(words.wait(words.there, Compare::equal, 1, -5ns).error().code == ErrorCode::deadline_exceeded);
  CHECK(words.wait(words.there, Compare::equal, 1, 3ms, 1ms).error().code == ErrorCode::deadline_exceeded);
  CHECK(words.wait(words.there, Compare::equal, 1, 1ms, 1h).error().code == ErrorCode::deadline_exceeded);
}

TEST_CASE("close ends every wait") {
  Words words;
  std::vector<std::thread> threads;
  std::vector<Result<std::uint64_t>> results(4, Result<std::uint64_t>{0});
  for (auto& result : results) {
    threads.emplace_back([&words, &result] { result = words.wait(words.there, Compare::equal, 1, 1h); });
  }
  words.page->close();
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) {
    REQUIRE(!result);
    CHECK(result.error().code == ErrorCode::stopped);
  }
}

TEST_CASE("no wake-up is lost: a ball thrown to and fro by a bell of the same page") {
  // The recheck that would heal a lost wake-up is an hour away: the players would stand still.
  constexpr std::uint64_t k_rounds = 20'000;
  for (const auto spin : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(2us)}) {
    Words words(1h);
    auto bell = std::move(*SignalBell::map(words.page->window().fd()));
    const auto play = [&](std::uint64_t& mine, std::uint64_t& theirs, bool first) {
      for (std::uint64_t round = 1; round <= k_rounds; ++round) {
        if (!first && !words.wait(mine, Compare::greater_equal, round, 1h, spin)) return false;
        add_word(host_device(), Words::bytes(theirs), 1);
        bell->ring();
        if (first && !words.wait(mine, Compare::equal, round, 1h, spin)) return false;
      }
      return true;
    };
    auto one = std::async(std::launch::async, play, std::ref(words.there), std::ref(words.back), true);
    auto two = std::async(std::launch::async, play, std::ref(words.back), std::ref(words.there), false);
    // A fraction of a second's work; this only bounds the failure.
    static_cast<void>(one.wait_for(60s));
    words.page->close();
    CHECK(one.get());
    CHECK(two.get());
  }
}

TEST_CASE("a waiter looks again by itself when nobody rings") {
  Words words;
  std::thread silent([&] { store_word(host_device(), Words::bytes(words.there), 1); });
  CHECK(words.wait(words.there, Compare::equal, 1, 1h));
  silent.join();
}

TEST_CASE("a bell is only made from a sealed page") {
  CHECK(SignalBell::map(-1).error().code == ErrorCode::access_denied);
}
