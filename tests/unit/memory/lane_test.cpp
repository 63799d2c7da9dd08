// SPDX-License-Identifier: Apache-2.0
//
// The lane's promise: after the board entry is closed and the door is idle, no byte of the region changes; with a
// thread as initiator, and with a process.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "memory/device.hpp"
#include "memory/lane.hpp"

using namespace hixl;
using namespace hixl::memory;

namespace {

constexpr std::size_t k_region_bytes = 4096;
constexpr std::uint32_t k_regions = 8;
constexpr LinkGen k_link_gen = 3;
constexpr std::uint64_t k_challenge = 0x1234;

struct Target {
  std::unique_ptr<Board> board = std::move(*Board::create(k_regions));
  std::unique_ptr<LaneDoor> door = std::move(*LaneDoor::create(k_challenge));
  std::unique_ptr<Window> region = std::move(*Window::create(k_region_bytes, "region"));

  Target() { door->open(k_link_gen); }
  [[nodiscard]] std::unique_ptr<Lane> lane() {
    return std::move(*Lane::open(door->window().fd(), board->window().read_only_fd(), k_regions, k_link_gen));
  }
  [[nodiscard]] std::unique_ptr<MappedWindow> mapping() {
    return std::move(*MappedWindow::map(region->fd(), k_region_bytes, true));
  }
};

/// What target and initiator say to each other; in memory that both have.
struct Talk {
  std::atomic<std::uint32_t> generation{0};
  std::atomic<std::uint64_t> stores{0};
  std::atomic<bool> end{false};
};

/// Stores ever new patterns into the region as long as it stands.
void hammer(Lane& lane, std::byte* data, Talk& talk) {
  unsigned pattern = 0;
  while (!talk.end.load(std::memory_order_relaxed)) {
    const RegionKey key{1, talk.generation.load(std::memory_order_relaxed)};
    if (!key.valid()) {
      std::this_thread::yield();
      continue;
    }
    pattern = pattern % 255 + 1;
    const auto outcome = lane.run(key, k_region_bytes, 0, [&] {
      std::fill_n(reinterpret_cast<volatile unsigned char*>(data), k_region_bytes, static_cast<unsigned char>(pattern));
    });
    if (outcome == Lane::Outcome::done) {
      talk.stores.fetch_add(1, std::memory_order_relaxed);
    } else {
      std::this_thread::yield();
    }
  }
}

/// Opens and revokes the region `rounds` times under the hammer; the count of rounds in which it changed afterwards.
int revoke_rounds(Target& target, Talk& talk, std::uint32_t rounds) {
  int changed = 0;
  std::vector<std::byte> after(k_region_bytes);
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    const RegionKey key{1, round};
    target.board->open(key);
    talk.generation.store(round, std::memory_order_relaxed);
    const std::uint64_t before = talk.stores.load(std::memory_order_relaxed);
    while (talk.stores.load(std::memory_order_relaxed) - before < round % 3) std::this_thread::yield();
    target.board->close(key);
    while (!target.door->idle(key)) std::this_thread::yield();
    // The owner's own pattern must stay, however long the initiator goes on trying.
    std::fill_n(target.region->data(), k_region_bytes, std::byte{0});
    for (int look = 0; look < 20; ++look) {
      if (std::any_of(target.region->data(), target.region->data() + k_region_bytes,
                      [](std::byte byte) { return byte != std::byte{0}; })) {
        ++changed;
        break;
      }
    }
  }
  return changed;
}

}  // namespace

TEST_CASE("an access runs while gate and board are open, and is counted") {
  Target target;
  auto lane = target.lane();
  CHECK(lane->challenge() == k_challenge);
  target.board->open({1, 5});
  bool ran = false;
  CHECK(lane->run({1, 5}, 8, 3, [&] {
    ran = true;
    CHECK(!target.door->idle());
    CHECK(!target.door->idle({1, 5}));
    CHECK(!target.door->idle({1, 99}));  // another life of the same region waits too
    CHECK(target.door->idle({2, 5}));
    CHECK(!lane->idle());
  }) == Lane::Outcome::done);
  CHECK(ran);
  CHECK(target.door->idle());
  CHECK(lane->idle());
  CHECK(lane->totals().operations == 1);
  CHECK(lane->totals().bytes_out == 8);
  CHECK(lane->totals().bytes_in == 3);
}

TEST_CASE("a closed region, another life, no such region, a fenced link: nothing runs") {
  Target target;
  auto lane = target.lane();
  const auto never = [] { FAIL("ran"); };
  target.board->open({1, 5});
  CHECK(lane->run({1, 4}, 0, 0, never) == Lane::Outcome::stale);
  CHECK(lane->run({2, 5}, 0, 0, never) == Lane::Outcome::stale);
  CHECK(lane->run({0, 0}, 0, 0, never) == Lane::Outcome::stale);
  CHECK(lane->run({k_regions, 1}, 0, 0, never) == Lane::Outcome::stale);
  CHECK(lane->run({0xffffffffU, 0}, 0, 0, never) == Lane::Outcome::stale);
  target.board->close({1, 5});
  CHECK(lane->run({1, 5}, 0, 0, never) == Lane::Outcome::stale);
  target.board->open({1, 6});
  target.door->close();
  CHECK(lane->run({1, 6}, 0, 0, never) == Lane::Outcome::closed);
  target.door->open(k_link_gen + 1);
  CHECK(lane->run({1, 6}, 0, 0, never) == Lane::Outcome::closed);
  CHECK(lane->totals().operations == 0);
  CHECK(target.door->idle());
}

TEST_CASE("as many accesses at once as there are slots, then crowded") {
  Target target;
  auto lane = target.lane();
  target.board->open({1, 1});
  std::size_t depth = 0;
  Lane::Outcome last = Lane::Outcome::done;
  const auto nest = [&](auto& self) -> void {
    ++depth;
    last = lane->run({1, 1}, 0, 0, [&] { self(self); });
  };
  nest(nest);
  CHECK(last == Lane::Outcome::done);  // of the outermost
  CHECK(depth == k_lane_slots + 1);    // the innermost attempt found no slot
  CHECK(lane->totals().operations == k_lane_slots);
  CHECK(target.door->idle());
}

TEST_CASE("a peer that clears the page does not make the lane look idle") {
  Target target;
  auto lane = target.lane();
  target.board->open({1, 1});
  CHECK(lane->run({1, 1}, 0, 0, [&] {
    std::fill_n(target.door->window().data(), sizeof(LanePage), std::byte{0});
    CHECK(!lane->idle());
  }) == Lane::Outcome::done);
}

TEST_CASE("opening refuses what is no page of a lane") {
  Target target;
  auto small = std::move(*Window::create(1, "small"));
  CHECK(!Lane::open(-1, target.board->window().fd(), k_regions, k_link_gen));
  CHECK(!Lane::open(target.door->window().fd(), target.board->window().fd(), 1U << 20U, k_link_gen));
  CHECK(!Lane::open(target.door->window().read_only_fd(), target.board->window().fd(), k_regions, k_link_gen));
}

namespace {

/// A child that runs one access after each SIGSTOP, traced by this process instruction by instruction.
class SteppedInitiator {
 public:
  SteppedInitiator(Target& target, int talk_fd, Talk& talk) : talk_(talk), pid_(fork()) {
    if (pid_ != 0) return;
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    auto theirs = std::move(*MappedWindow::map(talk_fd, sizeof(Talk), true));
    Talk& shared = *reinterpret_cast<Talk*>(theirs->data());
    auto lane = target.lane();
    auto mapping = target.mapping();
    for (;;) {
      raise(SIGSTOP);
      static_cast<void>(lane->run({1, shared.generation.load()}, 1, 0,
                                  [&] { *reinterpret_cast<volatile unsigned char*>(mapping->data()) = 1; }));
      shared.stores.fetch_add(1);
    }
  }
  ~SteppedInitiator() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  /// Goes on to the next SIGSTOP. False: the child ended.
  bool finish() { return ptrace(PTRACE_CONT, pid_, nullptr, nullptr) == 0 && stopped_by(SIGSTOP); }
  bool first_stop() { return pid_ > 0 && stopped_by(SIGSTOP); }
  /// Executes up to `count` instructions, fewer when the access is over; how many.
  int step(int count) {
    const std::uint64_t before = talk_.stores.load();
    int done = 0;
    while (done < count && talk_.stores.load() == before && ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr) == 0 &&
           stopped_by(SIGTRAP)) {
      ++done;
    }
    return done;
  }

 private:
  bool stopped_by(int signal) {
    int status = 0;
    return waitpid(pid_, &status, 0) == pid_ && WIFSTOPPED(status) && WSTOPSIG(status) == signal;
  }
  Talk& talk_;
  pid_t pid_;
};

}  // namespace

TEST_CASE("revoked means still: at each instruction of the access") {
  Target target;
  auto talk_window = std::move(*Window::create(sizeof(Talk), "talk"));
  Talk* talk = new (talk_window->data()) Talk;
  SteppedInitiator initiator(target, talk_window->fd(), *talk);
  if (!initiator.first_stop()) {
    MESSAGE("skipped: this process may not trace its child");
    return;
  }
  RegionKey key{1, 1};
  const auto open = [&] {
    target.board->open(key);
    talk->generation.store(key.generation);
    target.region->data()[0] = std::byte{0};
  };
  open();
  const int instructions = initiator.step(1 << 20);
  REQUIRE(target.region->data()[0] == std::byte{1});
  REQUIRE(initiator.finish());

  int refused = 0, waited_for = 0;
  // A few hundred instructions, each tried; instrumented builds have many more and skip some, for 10^5 steps in all.
  const int stride = static_cast<int>(std::max(std::int64_t{1}, std::int64_t{instructions} * instructions / 200'000));
  for (int count = 1; count <= instructions; count += stride) {
    ++key.generation;
    open();
    initiator.step(count);
    target.board->close(key);
    const bool idle = target.door->idle(key);
    ++(idle ? refused : waited_for);
    target.region->data()[0] = std::byte{0};
    REQUIRE(initiator.finish());
    if (idle) REQUIRE_MESSAGE(target.region->data()[0] == std::byte{0}, "stored after ", count, " instructions");
    REQUIRE(target.door->idle(key));
  }
  CHECK(refused > 0);
  CHECK(waited_for > 0);
}

TEST_CASE("revoked means still: threads as initiators") {
  Target target;
  auto lane = target.lane();
  Talk talk;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      const auto mapping = target.mapping();  // one each: that two stores race is not the question here
      hammer(*lane, mapping->data(), talk);
    });
  }
  CHECK(revoke_rounds(target, talk, 300) == 0);
  talk.end = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(talk.stores > 0);
  CHECK(target.door->idle());
}

TEST_CASE("revoked means still: a process as initiator, whose death leaves its slot set") {
  Target target;
  auto talk_window = std::move(*Window::create(sizeof(Talk), "talk"));
  Talk* talk = new (talk_window->data()) Talk;
  const int talk_fd = talk_window->fd();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto theirs = std::move(*MappedWindow::map(talk_fd, sizeof(Talk), true));
    auto lane = target.lane();
    auto mapping = target.mapping();
    Talk& shared = *reinterpret_cast<Talk*>(theirs->data());
    hammer(*lane, mapping->data(), shared);
    static_cast<void>(lane->run({1, shared.generation.load()}, 0, 0, [&] {
      shared.end.store(false);
      for (;;) pause();
    }));
    _exit(1);
  }
  CHECK(revoke_rounds(target, *talk, 300) == 0);
  CHECK(talk->stores > 0);
  const std::uint32_t last = talk->generation.load() + 1;
  target.board->open({1, last});
  talk->generation.store(last);
  talk->end.store(true);
  while (talk->end.load()) std::this_thread::yield();
  CHECK(!target.door->idle({1, last}));
  kill(child, SIGKILL);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(!target.door->idle({1, last}));
  CHECK(!target.door->idle());
}

TEST_CASE("an access without a region asks the gate alone, and holds up who waits for all but for no region") {
  Target target;
  auto lane = target.lane();
  bool ran = false;
  CHECK(lane->run_unbound([&] {
    ran = true;
    CHECK(!target.door->idle());
    CHECK(target.door->idle({0, 1}));
    CHECK(target.door->idle({0xfffffffeU, 1}));
  }) == Lane::Outcome::done);
  CHECK(ran);
  CHECK(target.door->idle());
  target.door->close();
  CHECK(lane->run_unbound([] { FAIL("the gate is closed"); }) == Lane::Outcome::closed);
  CHECK(target.door->idle());
}
