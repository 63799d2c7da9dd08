// SPDX-License-Identifier: Apache-2.0
//
// The driver that a program turns by hand: its one descriptor says when, no wake-up is lost, timers need no traffic.
#include <poll.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "runtime/drivers.hpp"
#include "runtime/hand_turn.hpp"
#include "uv_world.hpp"

using namespace hixl;
using namespace hixl::runtime;
using namespace hixl::runtime::test;

namespace {

std::uint32_t scaled(std::uint32_t full) {
  const char* scale = std::getenv("HIXL_TEST_SCALE");
  const double factor = scale == nullptr ? 1.0 : std::strtod(scale, nullptr);
  return std::max(1U, static_cast<std::uint32_t>(full * factor));
}

bool readable(int fd, int timeout_ms) {
  pollfd waited{fd, POLLIN, 0};
  return ::poll(&waited, 1, timeout_ms) == 1;
}

/// Only the descriptor says when to turn; one that keeps still for k_hang has lost a wake-up.
struct Rig {
  explicit Rig(const DriverOptions& options = {}) : driver(std::move(*make_polled_driver())) {
    loop.emplace(driver->port(), 1, 4096);
    REQUIRE(driver->start(*loop, options).has_value());
    hand = loop->thread()->hand();
  }
  ~Rig() { driver.reset(); }
  [[nodiscard]] bool until(const std::function<bool()>& done) {
    while (!done()) {
      if (!readable(hand->fd(), static_cast<int>(k_hang / 1ms))) return done();
      hand->poll();
    }
    return true;
  }
  /// Turns until the descriptor keeps still.
  void settle() {
    while (readable(hand->fd(), 0)) hand->poll();
  }
  std::optional<Loop> loop;  // outlives the driver
  std::unique_ptr<Driver> driver;
  std::shared_ptr<HandTurn> hand;
};

struct Counter final : MailTarget {
  std::atomic<std::uint32_t> seen{0};
  std::function<void()> action;
  void on_mail(const Mail&) override {
    if (action) action();
    seen.fetch_add(1);
    seen.notify_all();
  }
};

}  // namespace

TEST_CASE("P53 polled driver: a message to a driver that is about to sleep in the host's poll is never lost") {
  Rig rig;
  CHECK_FALSE(rig.driver->own_thread());
  Counter counter;
  const std::uint32_t posts = scaled(100'000);
  INFO("posts ", posts);
  std::thread poster([&] {
    for (std::uint32_t i = 0; i < posts; ++i) {
      while (!rig.loop->mailbox().post({&counter, 0, 0, 0})) std::this_thread::yield();
      // One at a time, each posted a little later after the one before was heard, so that posts sweep over the end of
      // the turn: the last look, the announcement, the host's poll. The poster spins, since a wake-up of its own takes
      // longer than all that.
      for (std::uint32_t spins = 0; counter.seen.load() <= i; ++spins) {
        if (spins % 1000 == 999) std::this_thread::yield();
      }
      for (std::uint32_t pause = i % 256; pause > 0; --pause) spin_pause();
    }
  });
  const bool all = rig.until([&] { return counter.seen == posts; });
  CHECK(all);
  poster.join();
}

TEST_CASE("P53 polled driver: mail between the last look and the announcement, and right after it, is heard") {
  Rig rig;
  Counter counter;
  struct Poster final : Poller {
    Loop* loop = nullptr;
    Counter* counter = nullptr;
    bool before = false;  // posts once after the turn has looked at the mailbox
    bool after = false;   // posts once while sleep is announced
    void post() { CHECK(loop->mailbox().post({counter, 0, 0, 0})); }
    bool poll() override {
      if (std::exchange(before, false)) post();
      return false;
    }
    bool can_sleep() override {
      if (std::exchange(after, false)) post();
      return true;
    }
  } poster;
  poster.loop = &*rig.loop;
  poster.counter = &counter;
  rig.loop->attach(poster);
  for (std::uint32_t round = 0; round < 100; ++round) {
    rig.settle();
    (round % 2 == 0 ? poster.before : poster.after) = true;
    rig.hand->poll();
    REQUIRE(readable(rig.hand->fd(), 0));
    rig.hand->poll();
    REQUIRE(counter.seen == round + 1);
  }
}

TEST_CASE("polled driver: many posting threads and sockets, all through the one descriptor") {
  Rig rig;
  Counter counter;
  constexpr std::uint32_t k_posts = 5'000;
  std::vector<std::thread> posters;
  for (int i = 0; i < 4; ++i) {
    posters.emplace_back([&] {
      for (std::uint32_t n = 0; n < k_posts; ++n) {
        while (!rig.loop->mailbox().post({&counter, 0, 0, 0})) std::this_thread::yield();
      }
    });
  }
  Door door;
  door.listener = std::move(*rig.driver->port().listen(any_port(), door));
  End near;
  near.stream = std::move(*rig.driver->port().connect(door.listener->address(), 10s, near));
  CHECK(rig.until([&] { return near.connected && door.accepted.size() == 1; }));
  End far;
  far.stream = std::move(door.accepted.front());
  far.stream->set_events(&far);
  near.write("through the host's loop");
  CHECK(rig.until([&] { return far.received.size() == 23 && counter.seen == 4 * k_posts; }));
  for (std::thread& poster : posters) poster.join();
}

TEST_CASE("polled driver: timers make the descriptor readable without any traffic, and none is early") {
  Rig rig;
  struct Alarm final : Timer {
    Loop* loop = nullptr;
    int fired = 0;
    int early = 0;
    void on_timer() override {
      if (loop->port().now() < due()) ++early;
      if (++fired < 50) loop->start_after(*this, Duration(1'300'000));
    }
  } alarm;
  alarm.loop = &*rig.loop;
  rig.loop->start_after(alarm, 1ms);
  CHECK(rig.until([&] { return alarm.fired == 50; }));
  CHECK(alarm.early == 0);
}

TEST_CASE("polled driver: libuv's own timers count too: a connection that nobody answers times out") {
  Rig rig;

  // Discarded addresses of RFC 5737: no answer, or no route at once; both end it.
  End lost;
  auto stream = rig.driver->port().connect({Address::Family::tcp, "192.0.2.1", 9}, 30ms, lost);
  if (!stream) return;
  lost.stream = std::move(*stream);
  CHECK(rig.until([&] { return lost.connected.has_value(); }));
}

TEST_CASE("polled driver: at rest the descriptor keeps still") {
  Rig rig;
  Counter counter;
  REQUIRE(rig.loop->mailbox().post({&counter, 0, 0, 0}));
  REQUIRE(rig.until([&] { return counter.seen == 1; }));
  rig.settle();
  CHECK_FALSE(readable(rig.hand->fd(), 0));
  CHECK(rig.hand->poll() == 0);
  CHECK_FALSE(readable(rig.hand->fd(), 0));
}

TEST_CASE("polled driver: one thread turns at a time; a second one, and a turn inside a turn, get 0") {
  Rig rig;
  Counter counter;
  std::size_t inner = 99;
  std::size_t other = 99;
  bool inside = false;
  counter.action = [&] {
    inside = rig.loop->on_loop_thread();
    inner = rig.hand->poll();
    std::thread([&] { other = rig.hand->poll(); }).join();
  };
  REQUIRE(rig.loop->mailbox().post({&counter, 0, 0, 0}));
  CHECK(rig.hand->poll() > 0);
  CHECK(counter.seen == 1);
  CHECK(inside);
  CHECK(inner == 0);
  CHECK(other == 0);
  CHECK_FALSE(rig.loop->on_loop_thread());  // only inside a turn
  CHECK(rig.hand->drives());
  std::thread([&] {
    rig.hand->poll();
    CHECK(rig.hand->drives());
  }).join();
  CHECK_FALSE(rig.hand->drives());
}

TEST_CASE("polled driver: a busy host and threads that all turn find every message once") {
  Rig rig;
  Counter counter;
  const std::uint32_t posts = scaled(20'000);
  std::atomic<bool> over{false};
  std::vector<std::thread> turners;
  for (int i = 0; i < 3; ++i) {
    turners.emplace_back([&] {
      while (!over.load()) rig.hand->poll();
    });
  }
  for (std::uint32_t i = 0; i < posts; ++i) {
    while (!rig.loop->mailbox().post({&counter, 0, 0, 0})) std::this_thread::yield();
  }
  for (std::uint32_t seen = counter.seen.load(); seen < posts; seen = counter.seen.load()) counter.seen.wait(seen);
  over = true;
  for (std::thread& turner : turners) turner.join();
  CHECK(counter.seen == posts);
}

TEST_CASE("polled driver: stopped inside its own turn, told in a later one, destroyed in that") {
  auto rig = std::make_unique<Rig>();
  Counter counter;
  int closed = 0;
  counter.action = [&] {
    rig->driver->stop([&] {
      ++closed;
      rig->driver.reset();
    });
    CHECK(closed == 0);
  };
  REQUIRE(rig->loop->mailbox().post({&counter, 0, 0, 0}));
  CHECK(rig->until([&] { return closed == 1; }));
  CHECK(rig->hand->poll() == 0);
  CHECK(rig->loop->mailbox().post({&counter, 0, 0, 0}));  // heard by nobody, and rings nowhere
  CHECK(counter.seen == 1);
}

TEST_CASE("polled driver: destroyed without a stop, and without a start, it leaves no descriptor behind") {
  const auto before = open_fds();
  for (int round = 0; round < 3; ++round) {
    {
      Rig rig;
      Door door;
      door.listener = std::move(*rig.driver->port().listen(any_port(), door));
      rig.hand->poll();
      door.listener.reset();
    }
    const auto never_started = std::move(*make_polled_driver());
  }
  CHECK(open_fds() == before);
}

TEST_CASE("polled driver: who waits turns; when nobody has turned for the patience, another thread that waits does") {
  Rig rig({.poll = PollMode::adaptive, .spin = Duration(0), .patience = 20ms});
  Counter counter;
  REQUIRE(rig.loop->mailbox().post({&counter, 0, 0, 0}));
  CHECK(rig.hand->wait([&] { return counter.seen == 1; }, WaitLimit(Timeout(-1))) == HandTurn::Waited::done);
  CHECK(rig.hand->wait([] { return false; }, WaitLimit(5ms)) == HandTurn::Waited::time_over);
  std::thread([&] {
    CHECK(rig.hand->wait([] { return false; }, WaitLimit(Timeout(-1))) == HandTurn::Waited::not_driving);
    FutexWord word{0};
    CHECK(rig.hand->sleep_on(word, 0, WaitLimit(1ms)) == Woken::time_over);
    CHECK_FALSE(rig.hand->drives());
    while (!rig.hand->drives()) CHECK(rig.hand->sleep_on(word, 0, WaitLimit(Timeout(-1))) == Woken::maybe);
  }).join();
  CHECK_FALSE(rig.hand->drives());
}
