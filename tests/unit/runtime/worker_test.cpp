// SPDX-License-Identifier: Apache-2.0
//
// Worker threads: every job is worked on once, away from the loop, and told once, on it.
#include "runtime/worker.hpp"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "fake_port.hpp"

using namespace hixl;

namespace {

struct Noted final : runtime::Job {
  void work() override {
    worked_on = std::this_thread::get_id();
    works.fetch_add(1, std::memory_order_relaxed);
  }
  void done() override {
    told_on = std::this_thread::get_id();
    dones += 1;
  }
  std::atomic<int> works{0};
  int dones = 0;
  std::thread::id worked_on, told_on;
};

}  // namespace

TEST_CASE("jobs are worked on by threads, and told by the loop, each once") {
  test::FakePort port;
  runtime::Loop loop(port, 1, 16);
  const auto worker = runtime::make_worker_threads(loop, 3);
  std::vector<Noted> jobs(100);
  for (Noted& job : jobs) worker->run(job);
  const auto all_done = [&] {
    for (const Noted& job : jobs) {
      if (job.dones == 0) return false;
    }
    return true;
  };
  constexpr int k_turns_max = 10'000'000;
  for (int i = 0; i < k_turns_max && !all_done(); ++i) {
    if (!loop.turn()) std::this_thread::yield();
  }
  for (const Noted& job : jobs) {
    CHECK(job.works.load() == 1);
    CHECK(job.dones == 1);
    CHECK(job.worked_on != std::this_thread::get_id());
    CHECK(job.told_on == std::this_thread::get_id());
  }
}

TEST_CASE("a job that ends while the loop is awake keeps it from sleeping, and one that ends later wakes it") {
  test::FakePort port;
  runtime::Loop loop(port, 1, 16);
  const auto worker = runtime::make_worker_threads(loop, 1);
  for (int round = 0; round < 50; ++round) {
    Noted job;
    const int wakes = port.wakes();
    worker->run(job);
    constexpr int k_yields_max = 10'000'000;
    if (loop.prepare_sleep()) {
      for (int i = 0; i < k_yields_max && port.wakes() == wakes; ++i) std::this_thread::yield();
      REQUIRE(port.wakes() > wakes);
    }
    loop.awake();
    for (int i = 0; i < k_yields_max && job.dones == 0; ++i) loop.turn();
    REQUIRE(job.dones == 1);
  }
}

TEST_CASE("what the end of a job brings while its worker goes is worked on there and then") {
  struct Parent final : runtime::Job {
    void work() override {}
    void done() override {
      for (Noted& job : brings) worker->run(job);
    }
    runtime::Worker* worker = nullptr;
    std::vector<Noted> brings = std::vector<Noted>(3);
  };
  test::FakePort port;
  runtime::Loop loop(port, 1, 16);
  Parent parent;
  {
    const auto worker = runtime::make_worker_threads(loop, 4);  // of which one starts now
    parent.worker = worker.get();
    worker->run(parent);
  }
  for (const Noted& job : parent.brings) {
    CHECK(job.works.load() == 1);
    CHECK(job.dones == 1);
    CHECK(job.worked_on == std::this_thread::get_id());
  }
}

TEST_CASE("a worker that goes finishes what it was given") {
  test::FakePort port;
  runtime::Loop loop(port, 1, 16);
  std::vector<Noted> jobs(20);
  {
    const auto worker = runtime::make_worker_threads(loop, 2);
    for (Noted& job : jobs) worker->run(job);
  }
  for (const Noted& job : jobs) {
    CHECK(job.works.load() == 1);
    CHECK(job.dones == 1);
  }
}
