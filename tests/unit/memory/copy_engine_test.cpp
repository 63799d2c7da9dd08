// SPDX-License-Identifier: Apache-2.0
//
// The copy engine: bytes arrive whole, every job comes back once, and what was revoked or cancelled stays still.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "base/random.hpp"
#include "memory/copy_engine.hpp"

using namespace hixl;
using namespace hixl::memory;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_region_bytes = 256U << 10U;
constexpr RegionKey k_key{1, 1};

struct Fixture {
  std::unique_ptr<Board> board = std::move(*Board::create(4));
  std::unique_ptr<LaneDoor> door = std::move(*LaneDoor::create(1));
  std::unique_ptr<Window> region = std::move(*Window::create(k_region_bytes, "region"));
  std::unique_ptr<MappedWindow> mapping = std::move(*MappedWindow::map(region->fd(), k_region_bytes, true));
  std::unique_ptr<Lane> lane = std::move(
      *Lane::open(door->window().fd(), board->window().read_only_fd(), board->regions_max(), 1));
  std::vector<std::byte> local = std::vector<std::byte>(k_region_bytes);
  std::atomic<int> rung{0};
  std::unique_ptr<CopyEngine> engine;

  explicit Fixture(const CopyEngine::Options& options = {}) {
    door->open(1);
    board->open(k_key);
    const auto ring = [](void* context) noexcept { static_cast<Fixture*>(context)->rung.fetch_add(1); };
    engine = std::move(*CopyEngine::create({.function = ring, .context = this}, options));
  }
  void fill(CopyJob& job, std::size_t offset, std::size_t bytes) {
    job.lane = lane.get();
    job.region = k_key;
    job.local_device = &host_device();
    job.segments[0] = {local.data() + offset, mapping->data() + offset, static_cast<std::uint32_t>(bytes)};
    job.segment_count = 1;
  }
  CopyJob& take() {
    for (;;) {
      if (CopyJob* job = engine->take()) return *job;
      std::this_thread::yield();
    }
  }
};

}  // namespace

TEST_CASE("pieces of any size and segments of any size, both directions") {
  constexpr std::uint64_t k_seed = 7;
  INFO("seed ", k_seed);
  Random random(k_seed);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{100}, std::size_t{4096}, k_region_bytes}) {
    Fixture fixture({.spin = 0ns, .piece_bytes = piece, .jobs_max = 4});
    for (std::byte& byte : fixture.local) byte = static_cast<std::byte>(random.next());
    CopyJob job;
    fixture.fill(job, 0, 0);
    std::size_t offset = 0;
    for (job.segment_count = 0; job.segment_count < job.segments.size(); ++job.segment_count) {
      const auto bytes = static_cast<std::uint32_t>(random.below(2000));
      job.segments[job.segment_count] = {fixture.local.data() + offset, fixture.mapping->data() + offset, bytes};
      offset += bytes;
    }
    REQUIRE(fixture.engine->submit(job));
    CHECK(&fixture.take() == &job);
    CHECK(job.outcome == CopyJob::Outcome::done);
    CHECK(job.bytes == offset);
    CHECK(std::equal(fixture.local.begin(), fixture.local.begin() + static_cast<std::ptrdiff_t>(offset),
                     fixture.region->data()));
    CHECK(fixture.region->data()[offset] == std::byte{0});

    const std::vector<std::byte> sent(fixture.local);
    std::fill(fixture.local.begin(), fixture.local.end(), std::byte{0});
    job.direction = CopyJob::Direction::from_peer;
    REQUIRE(fixture.engine->submit(job));
    CHECK(&fixture.take() == &job);
    CHECK(std::equal(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(offset), fixture.local.begin()));
    CHECK(fixture.lane->totals().operations == 0);  // not the lane's traffic: whoever submits counts it
    CHECK(fixture.rung.load() == 2);
  }
}

TEST_CASE("every job comes back once, also through a full ring and a sleeping engine") {
  for (const auto spin : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(20us)}) {
    Fixture fixture({.spin = spin, .piece_bytes = 4096, .jobs_max = 4});
    std::vector<CopyJob> jobs(4);
    for (std::size_t i = 0; i < jobs.size(); ++i) fixture.fill(jobs[i], i * 64, 64);
    std::vector<int> count(jobs.size());
    std::size_t submitted = 0, taken = 0;
    constexpr std::size_t k_jobs = 20'000;
    std::vector<CopyJob*> free;
    for (CopyJob& job : jobs) free.push_back(&job);
    CopyJob extra;
    fixture.fill(extra, 0, 1);
    while (taken < k_jobs) {
      while (submitted < k_jobs && !free.empty()) {
        REQUIRE(fixture.engine->submit(*free.back()));
        free.pop_back();
        ++submitted;
      }
      if (fixture.engine->outstanding() == jobs.size()) CHECK(!fixture.engine->submit(extra));
      CopyJob& job = fixture.take();
      ++count[static_cast<std::size_t>(&job - jobs.data())];
      free.push_back(&job);
      ++taken;
    }
    CHECK(fixture.engine->take() == nullptr);
    CHECK(fixture.engine->outstanding() == 0);
    int sum = 0;
    for (const int times : count) sum += times;
    CHECK(sum == static_cast<int>(k_jobs));
  }
}

TEST_CASE("a revoked region is still after at most one piece; a fenced link, a cancelled job likewise") {
  constexpr int k_rounds = 60;
  for (int round = 0; round < k_rounds; ++round) {
    Fixture fixture({.spin = 20us, .piece_bytes = 4096, .jobs_max = 4});
    std::fill(fixture.local.begin(), fixture.local.end(), std::byte{1});
    CopyJob job;
    fixture.fill(job, 0, k_region_bytes);
    REQUIRE(fixture.engine->submit(job));
    // Wait until some of it has been copied, then end it in one of three ways.
    auto& last_of_first_piece = *reinterpret_cast<std::atomic<unsigned char>*>(fixture.region->data() + 4095);
    while (last_of_first_piece.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
    CopyJob::Outcome expected = CopyJob::Outcome::cancelled;
    if (round % 3 == 0) {
      fixture.board->close(k_key);
      expected = CopyJob::Outcome::stale;
      while (!fixture.door->idle(k_key)) std::this_thread::yield();
    } else if (round % 3 == 1) {
      fixture.door->close();
      expected = CopyJob::Outcome::closed;
      while (!fixture.door->idle()) std::this_thread::yield();
    } else {
      job.cancel();
    }
    if (round % 3 != 2) {
      std::vector<std::byte> seen(fixture.region->data(), fixture.region->data() + k_region_bytes);
      static_cast<void>(fixture.take());
      CHECK(std::equal(seen.begin(), seen.end(), fixture.region->data()));
    } else {
      static_cast<void>(fixture.take());
    }
    if (job.outcome != CopyJob::Outcome::done) CHECK(job.outcome == expected);
  }
}

TEST_CASE("destruction executes what was submitted") {
  Fixture fixture;
  std::fill(fixture.local.begin(), fixture.local.end(), std::byte{1});
  CopyJob job;
  fixture.fill(job, 0, k_region_bytes);
  REQUIRE(fixture.engine->submit(job));
  fixture.engine.reset();
  CHECK(fixture.region->data()[k_region_bytes - 1] == std::byte{1});
}

TEST_CASE("an engine takes no signals and leaves the mask of its maker alone") {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  struct Seen {
    std::atomic<int> state{0};  // 1: blocked, 2: not
  } seen;
  const auto look = [](void* context) noexcept {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    static_cast<Seen*>(context)->state = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGCHLD) == 1 ? 1 : 2;
  };
  Fixture fixture;
  auto engine = std::move(*CopyEngine::create({.function = look, .context = &seen}, {}));
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  CHECK(sigismember(&before, SIGINT) == sigismember(&after, SIGINT));
  CopyJob job;
  fixture.fill(job, 0, 1);
  REQUIRE(engine->submit(job));
  while (seen.state == 0) std::this_thread::yield();
  CHECK(seen.state == 1);
}
