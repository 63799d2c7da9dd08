// SPDX-License-Identifier: Apache-2.0
//
// Who is inside is waited for, and nobody comes in behind.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "passes.hpp"

using namespace hixl::kv;

namespace {

std::chrono::steady_clock::time_point in(std::chrono::seconds time) { return std::chrono::steady_clock::now() + time; }

}  // namespace

TEST_CASE("shut: nobody enters any more, and whoever is inside is still waited for") {
  Passes passes;
  auto first = passes.enter();
  auto second = passes.enter();
  REQUIRE(first);
  REQUIRE(second);
  passes.shut();
  CHECK_FALSE(passes.enter());
  CHECK_FALSE(passes.wait_until(in(std::chrono::seconds(0))));
  const Passes::Pass moved = std::move(*first);
  first.reset();
  second.reset();
  CHECK_FALSE(passes.wait_until(in(std::chrono::seconds(0))));
}

TEST_CASE("the last one out wakes who waits; nothing of theirs is seen afterwards") {
  for (int round = 0; round < 50; ++round) {
    Passes passes;
    std::atomic<int> inside{0};
    std::atomic<int> begun{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&] {
        begun += 1;
        while (const auto pass = passes.enter()) {
          inside += 1;
          inside -= 1;
        }
      });
    }
    while (begun.load() < 3) std::this_thread::yield();
    passes.shut();
    CHECK(passes.wait_until(in(std::chrono::seconds(30))));
    CHECK(inside.load() == 0);
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_CASE("whoever has waited for the last one may destroy it") {
  for (int round = 0; round < 2000; ++round) {
    auto passes = std::make_unique<Passes>();
    auto pass = passes->enter();
    REQUIRE(pass);
    std::thread last([&pass] { pass.reset(); });
    passes->shut();
    while (!passes->wait_until(in(std::chrono::seconds(0)))) {  // looks often, rather than to be woken
    }
    passes.reset();
    last.join();
  }
}
