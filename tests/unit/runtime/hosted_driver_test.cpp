// SPDX-License-Identifier: Apache-2.0
//
// The driver on a host program's own libuv loop: it works beside the host's handles, sleeps with them, and goes.
#include <poll.h>
#include <sys/timerfd.h>

#include <atomic>
#include <thread>

#include "runtime/drivers.hpp"
#include "uv_world.hpp"

using namespace hixl;
using namespace hixl::runtime;
using namespace hixl::runtime::test;

namespace {

/// The host: a loop with a timer and a counter of its turns.
struct Host {
  Host() {
    REQUIRE(uv_loop_init(&uv) == 0);
    uv_timer_init(&uv, &tick);
    uv_prepare_init(&uv, &prepare);
    tick.data = prepare.data = this;
    uv_prepare_start(&prepare, [](uv_prepare_t* raw) { ++static_cast<Host*>(raw->data)->turns; });
    uv_unref(reinterpret_cast<uv_handle_t*>(&prepare));
  }
  ~Host() {
    uv_close(reinterpret_cast<uv_handle_t*>(&tick), nullptr);
    uv_close(reinterpret_cast<uv_handle_t*>(&prepare), nullptr);
    uv_run(&uv, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&uv) == 0);
  }
  void every(std::uint64_t period_ms, std::function<void()> what) {
    action = std::move(what);
    uv_update_time(&uv);
    uv_timer_start(
        &tick, [](uv_timer_t* raw) { static_cast<Host*>(raw->data)->action(); }, period_ms, period_ms);
  }
  [[nodiscard]] bool until(const std::function<bool()>& done) {
    const auto give_up = std::chrono::steady_clock::now() + k_hang;
    while (!done() && std::chrono::steady_clock::now() < give_up) uv_run(&uv, UV_RUN_ONCE);
    return done();
  }
  uv_loop_t uv{};
  uv_timer_t tick{};
  uv_prepare_t prepare{};
  std::uint64_t turns = 0;
  std::function<void()> action;
};

struct Guest {
  explicit Guest(Host& host, const DriverOptions& options = {}) : driver(std::move(*make_hosted_driver(&host.uv))) {
    loop.emplace(driver->port(), 1, 4096);
    REQUIRE(driver->start(*loop, options).has_value());
  }
  std::unique_ptr<Driver> driver;
  std::optional<Loop> loop;
};

struct Counter final : MailTarget {
  std::atomic<std::uint32_t> seen{0};
  std::function<void()> action;
  void on_mail(const Mail&) override {
    ++seen;
    if (action) action();
  }
};

}  // namespace

TEST_CASE("hosted driver: works beside the host's own timer, then goes and leaves the loop clean") {
  Host host;
  Guest guest(host);
  CHECK_FALSE(guest.driver->own_thread());
  int ticks = 0;
  host.every(1, [&] { ++ticks; });

  Counter counter;
  constexpr std::uint32_t k_posts = 20'000;
  std::thread poster([&] {
    for (std::uint32_t i = 0; i < k_posts; ++i) {
      while (!guest.loop->mailbox().post({&counter, 0, 0, 0})) std::this_thread::yield();
      if (i % 64 == 0) std::this_thread::yield();
    }
  });
  Door door;
  door.listener = std::move(*guest.driver->port().listen(any_port(), door));
  End near;
  near.stream = std::move(*guest.driver->port().connect(door.listener->address(), 10s, near));
  CHECK(host.until([&] { return near.connected && door.accepted.size() == 1; }));
  End far;
  far.stream = std::move(door.accepted.front());
  far.stream->set_events(&far);
  near.write("through the host's loop");
  CHECK(host.until([&] { return far.received.size() == 23 && counter.seen == k_posts && ticks >= 10; }));
  poster.join();

  int closed = 0;
  guest.driver->stop([&] { ++closed; });
  guest.driver->stop([&] { closed += 100; });
  guest.driver->join();  // nothing to wait for: the host turns
  CHECK(closed == 0);
  uv_timer_stop(&host.tick);
  uv_run(&host.uv, UV_RUN_DEFAULT);  // returns, since none of our handles is left
  CHECK(closed == 1);
}

TEST_CASE("hosted driver: who is told of lateness may close the stream whose event it comes before") {
  Host host;
  // Held up after the guest has turned and before events are looked for: the first thing that it learns is an event.
  struct Hold {
    uv_prepare_t handle{};
    bool on = false;
  } hold;
  uv_prepare_init(&host.uv, &hold.handle);
  hold.handle.data = &hold;
  uv_prepare_start(&hold.handle, [](uv_prepare_t* raw) {
    if (!std::exchange(static_cast<Hold*>(raw->data)->on, false)) return;
    const auto until = std::chrono::steady_clock::now() + 60ms;
    while (std::chrono::steady_clock::now() < until) {
    }
  });
  {
    Guest guest(host);
    Door door;
    door.listener = std::move(*guest.driver->port().listen(any_port(), door));
    End near;
    near.stream = std::move(*guest.driver->port().connect(door.listener->address(), 10s, near));
    REQUIRE(host.until([&] { return near.connected && door.accepted.size() == 1; }));
    struct Watcher final : LateWatch, Timer {
      void on_late(Duration) override {
        ++told;
        stream.reset();
      }
      void on_timer() override { ++fired; }
      std::unique_ptr<Stream>& stream;
      int told = 0;
      int fired = 0;
      explicit Watcher(std::unique_ptr<Stream>& of) : stream(of) {}
    } watcher(near.stream);
    guest.loop->watch_lateness(&watcher, 20ms);
    guest.loop->start_after(watcher, 1ms);
    const iovec piece{const_cast<char*>("late"), 4};
    REQUIRE(door.accepted.front()->write(std::span(&piece, 1)).bytes == 4);
    hold.on = true;
    REQUIRE(host.until([&] { return watcher.fired > 0; }));
    CHECK(watcher.told >= 1);
    CHECK(near.received.empty());
    guest.loop->watch_lateness(nullptr, {});
    door.listener.reset();
    door.accepted.clear();
    guest.driver->stop({});
  }
  uv_close(reinterpret_cast<uv_handle_t*>(&hold.handle), nullptr);
}

TEST_CASE("hosted driver: an idle guest lets the host sleep") {
  Host host;
  Guest guest(host);
  Counter counter;
  (void)guest.loop->mailbox().post({&counter, 0, 0, 0});
  REQUIRE(host.until([&] { return counter.seen == 1; }));
  bool over = false;
  host.every(200, [&] { over = true; });
  const std::uint64_t before = host.turns;
  REQUIRE(host.until([&] { return over; }));
  CHECK(host.turns - before <= 20);
  guest.driver->stop({});
}

TEST_CASE("hosted driver: timers of the guest end the host's sleep, none is early") {
  Host host;
  Guest guest(host);
  struct Alarm final : Timer {
    Loop* loop = nullptr;
    int fired = 0;
    int early = 0;
    void on_timer() override {
      if (loop->now() < due()) ++early;
      if (++fired < 50) loop->start_after(*this, Duration(1'300'000));
    }
  } alarm;
  alarm.loop = &*guest.loop;
  guest.loop->start_after(alarm, 1ms);
  CHECK(host.until([&] { return alarm.fired == 50; }));
  CHECK(alarm.early == 0);
  guest.driver->stop({});
}

TEST_CASE("hosted driver: tasks go on turn by turn without the host's loop going to sleep") {
  Host host;
  Guest guest(host);
  struct Again final : Task {
    Loop* loop = nullptr;
    int runs = 0;
    void run() override {
      if (++runs < 1000) loop->defer(*this);
    }
  } again;
  again.loop = &*guest.loop;
  guest.loop->defer(again);
  CHECK(host.until([&] { return again.runs == 1000; }));
  guest.driver->stop({});
}

TEST_CASE("hosted driver: mail is heard while the host waits on the backend descriptor, outside uv_run") {
  Host host;
  Guest guest(host);
  Counter counter;
  uv_run(&host.uv, UV_RUN_NOWAIT);
  for (std::uint32_t i = 0; i < 100; ++i) {
    std::thread poster([&] { (void)guest.loop->mailbox().post({&counter, 0, 0, 0}); });
    poster.join();
    pollfd backend{uv_backend_fd(&host.uv), POLLIN, 0};
    REQUIRE(::poll(&backend, 1, 0) == 1);
    uv_run(&host.uv, UV_RUN_NOWAIT);
    REQUIRE(counter.seen == i + 1);
    uv_run(&host.uv, UV_RUN_NOWAIT);
  }
  guest.driver->stop({});
}

TEST_CASE("hosted driver: stopped from inside its own turn, destroyed when closed") {
  Host host;
  auto guest = std::make_unique<Guest>(host);
  Counter counter;
  bool closed = false;
  counter.action = [&] {
    guest->driver->stop([&] {
      guest.reset();
      closed = true;
    });
    CHECK_FALSE(closed);
  };
  (void)guest->loop->mailbox().post({&counter, 0, 0, 0});
  CHECK(host.until([&] { return closed; }));
  CHECK(guest == nullptr);
}

TEST_CASE("hosted driver: destroyed without a stop it lets go of the host's loop all the same") {
  Host host;
  { Guest guest(host); }
  { const auto never_started = std::move(*make_hosted_driver(&host.uv)); }
  uv_run(&host.uv, UV_RUN_DEFAULT);
}

TEST_CASE("hosted driver: the thread that turns the loop is the loop's thread, whoever made it") {
  Host host;
  Guest guest(host);
  CHECK(guest.loop->on_loop_thread());
  Counter counter;
  bool inside = false;
  counter.action = [&] { inside = guest.loop->on_loop_thread(); };
  (void)guest.loop->mailbox().post({&counter, 0, 0, 0});
  std::thread other([&] { (void)host.until([&] { return counter.seen == 1; }); });
  other.join();
  CHECK(inside);
  CHECK_FALSE(guest.loop->on_loop_thread());
  guest.driver->stop({});
}

TEST_CASE("hosted driver: an event after a sleep of the host sees the time of now") {
  Host host;
  Guest guest(host);
  struct Ringing final : WatchEvents {
    Loop* loop = nullptr;
    Instant seen{};
    std::unique_ptr<Watch> watch;
    void on_ready() override {
      seen = loop->now();
      watch.reset();
    }
  } ringing;
  ringing.loop = &*guest.loop;
  const Fd clock(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  const itimerspec after{{0, 0}, {0, 50'000'000}};
  ringing.watch = std::move(*guest.driver->port().watch(clock.get(), ringing));
  const Instant begun = guest.driver->port().now();
  ::timerfd_settime(clock.get(), 0, &after, nullptr);
  REQUIRE(host.until([&] { return ringing.watch == nullptr; }));
  CHECK(ringing.seen - begun >= 49ms);
  guest.driver->stop({});
}

TEST_CASE("hosted driver: mail after the end is heard by nobody, and looks for no port to ring at") {
  Host host;
  Guest guest(host);
  Counter counter;
  uv_run(&host.uv, UV_RUN_NOWAIT);  // sleep is announced
  guest.driver->stop([&] { guest.driver.reset(); });
  REQUIRE(host.until([&] { return guest.driver == nullptr; }));
  CHECK(guest.loop->mailbox().post({&counter, 0, 0, 0}));
  CHECK(counter.seen == 0);
}

TEST_CASE("hosted driver: needs a loop") {
  CHECK(make_hosted_driver(nullptr).error().code == ErrorCode::invalid_argument);
}
