// SPDX-License-Identifier: Apache-2.0
//
// The thread driver: wake-ups, timers, spinning and sleeping, and the end.
#include "runtime/drivers.hpp"

#include <pthread.h>
#include <sys/timerfd.h>

#include <array>
#include <csignal>
#include <ctime>
#include <thread>

#include "base/random.hpp"
#include "running.hpp"

using namespace hixl;
using namespace hixl::runtime;
using namespace hixl::runtime::test;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr std::uint32_t k_stress = 10'000;  // ten times slower there
#else
constexpr std::uint32_t k_stress = 50'000;  // in each of two or three modes
#endif

struct Turns final : Poller {
  std::uint64_t count = 0;
  bool poll() override {
    ++count;
    return false;
  }
  bool can_sleep() override { return true; }
};

struct Alarm final : Timer {
  std::function<void()> action;
  void on_timer() override { action(); }
};

}  // namespace

TEST_CASE("thread driver: no wake-up is lost when mail comes while the loop falls asleep") {
  struct Counter final : MailTarget {
    std::atomic<std::uint32_t> seen{0};
    void on_mail(const Mail&) override { seen.fetch_add(1, std::memory_order_release); }
  };
  constexpr std::uint64_t k_seed = 53;
  INFO("seed ", k_seed);
  for (const DriverOptions& options : {k_event, DriverOptions{PollMode::adaptive, Duration(5'000)}}) {
    Counter counter;
    Running running(options);
    Random random(k_seed);
    bool lost = false;
    for (std::uint32_t i = 0; i < k_stress && !lost; ++i) {
      REQUIRE(running.loop->mailbox().post({&counter, 0, 0, 0}));
      const auto give_up = std::chrono::steady_clock::now() + k_hang;
      // Yielding, so that on one core the loop gets to its sleep; the pause after it hits every step on the way there.
      while (counter.seen.load(std::memory_order_acquire) <= i && !lost) {
        std::this_thread::yield();
        lost = std::chrono::steady_clock::now() > give_up;
      }
      for (std::uint64_t pause = random.below(400); pause > 0; --pause) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
    }
    CHECK_FALSE(lost);
    CHECK(counter.seen.load() == k_stress);
  }
}

TEST_CASE("thread driver: sixteen threads post, everything arrives, in order for each") {
  constexpr std::uint32_t k_threads = 16;
  constexpr std::uint32_t k_each = k_stress / k_threads;
  struct Sink final : MailTarget {
    std::array<std::uint32_t, k_threads> next{};
    std::uint32_t total = 0;
    std::uint32_t disorder = 0;
    Gate all;
    void on_mail(const Mail& mail) override {
      if (mail.b != next[mail.a]) ++disorder;
      next[mail.a] = static_cast<std::uint32_t>(mail.b) + 1;
      if (++total == k_threads * k_each) all.open();
    }
  };
  for (const DriverOptions& options : {k_event, DriverOptions{}, k_busy}) {
    Sink sink;
    Running running(options);
    std::vector<std::thread> threads;
    for (std::uint32_t thread = 0; thread < k_threads; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint32_t i = 0; i < k_each; ++i) {
          while (!running.loop->mailbox().post({&sink, 0, thread, i})) std::this_thread::yield();  // full
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(sink.all.wait());
    running.stop();
    CHECK(sink.total == k_threads * k_each);
    CHECK(sink.disorder == 0);
  }
}

TEST_CASE("thread driver: timers end a sleep, none is early") {
  for (const DriverOptions& options : {k_event, k_busy}) {
    std::array<Alarm, 20> alarms;
    Gate done;
    std::size_t fired = 0;
    std::size_t early = 0;
    Running running(options);
    running.run([&] {
      for (std::size_t i = 0; i < alarms.size(); ++i) {
        const Instant due = running.loop->now() + Duration(700'000 * i);
        alarms[i].action = [&, due] {
          if (running.loop->now() < due) ++early;
          if (++fired == alarms.size()) done.open();
        };
        running.loop->start(alarms[i], due);
      }
    });
    CHECK(done.wait());
    CHECK(early == 0);
  }
}

TEST_CASE("thread driver: an idle loop does not turn") {
  // A timer ends the time of watching; between there are only the wheel's own boundaries.
  for (const auto& [options, turns_max] : {std::pair(k_event, 20U), std::pair(DriverOptions{}, 20'000U)}) {
    Turns turns;
    Alarm first;
    Alarm second;
    Gate done;
    std::uint64_t counted = 0;
    Running running(options);
    std::uint64_t cpu_before_ns = 0;
    std::uint64_t cpu_after_ns = 0;
    const auto cpu_ns = [] {
      timespec spent{};
      ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
      return static_cast<std::uint64_t>(spent.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(spent.tv_nsec);
    };
    running.run([&] {
      running.loop->attach(turns);
      first.action = [&] {
        counted = turns.count;
        cpu_before_ns = cpu_ns();
        running.loop->start_after(second, 300ms);
        running.driver->port().wake();  // and a wake-up is over when it has been heard
      };
      second.action = [&] {
        counted = turns.count - counted;
        cpu_after_ns = cpu_ns();
        done.open();
      };
      running.loop->start_after(first, 10ms);
    });
    REQUIRE(done.wait());
    CHECK(counted >= 1);
    CHECK(counted <= turns_max);  // spinning all the time would be a million
    MESSAGE("idle for 300 ms: ", counted, " turns, ", (cpu_after_ns - cpu_before_ns) / 1000, " us of CPU");
    running.run([&] { turns.unlink(); });
  }
}

TEST_CASE("thread driver: a poller that cannot sleep keeps the loop turning, also where spinning is forbidden") {
  struct Countdown final : Poller {
    int left = 1000;
    Gate* done = nullptr;
    bool poll() override {
      if (left > 0 && --left == 0) done->open();
      return false;
    }
    bool can_sleep() override { return left == 0; }
  };
  for (const bool spin : {true, false}) {
    Gate done;
    Countdown countdown;
    countdown.done = &done;
    Running running(k_event);
    running.run([&] {
      running.driver->allow_spin(spin);
      running.loop->attach(countdown);
    });
    CHECK(done.wait());
    running.run([&] { countdown.unlink(); });
  }
}

TEST_CASE("thread driver: busy never sleeps, unless spinning is forbidden") {
  // Nothing wakes this loop but its own turning: without a sleep the count goes on; with one it stands still.
  Gate many;
  struct Watcher final : Poller {
    std::uint64_t count = 0;
    Gate* many = nullptr;
    bool poll() override {
      if (++count == 10'000) many->open();
      return false;
    }
    bool can_sleep() override { return true; }
  } watcher;
  watcher.many = &many;
  Running running(k_busy);
  running.run([&] { running.loop->attach(watcher); });
  CHECK(many.wait());
  std::uint64_t counted = 0;
  Alarm later;
  Gate done;
  running.run([&] {
    running.driver->allow_spin(false);
    counted = watcher.count;
    later.action = [&] {
      counted = watcher.count - counted;
      done.open();
    };
    running.loop->start_after(later, 100ms);
  });
  REQUIRE(done.wait());
  CHECK(counted <= 20);
  running.run([&] { watcher.unlink(); });
}

namespace {

/// As a frame stream does: reads in the callback, answers at the end of the turn.
struct Answering final : StreamEvents, ListenerEvents, Task {
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Stream> stream;
  Loop* loop = nullptr;
  std::string held;
  void on_accept(std::unique_ptr<Stream> accepted) override {
    stream = std::move(accepted);
    stream->set_events(this);
  }
  void on_connected(const Result<void>&) override {}
  void on_readable() override {
    char bytes[64];
    const iovec into{bytes, sizeof(bytes)};
    const IoResult got = stream->read({&into, 1});
    if (got.state != IoResult::State::ok) return stream->want_read(false);
    held.append(bytes, got.bytes);
    loop->defer(*this);
  }
  void on_writable() override {}
  void run() override {
    const iovec out = piece(held);
    (void)stream->write({&out, 1});
    held.clear();
  }
};

}  // namespace

TEST_CASE("thread driver: what an event defers is run before the loop sleeps, and events are seen while it spins") {
  for (const DriverOptions& options : {k_event, DriverOptions{}, k_busy}) {
    Answering answering;
    Running running(options);
    answering.loop = &*running.loop;
    running.run([&] { answering.listener = std::move(*running.driver->port().listen(any_port(), answering)); });
    const SocketAddress to = literal_addresses(answering.listener->address(), Stage::connect)->front();
    const Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(client.get(), &to.any, to.length) == 0);
    const timeval limit{std::chrono::seconds(k_hang).count(), 0};
    ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    for (int i = 0; i < 100; ++i) {
      char byte = 'x';
      REQUIRE(::send(client.get(), &byte, 1, MSG_NOSIGNAL) == 1);
      REQUIRE(::recv(client.get(), &byte, 1, 0) == 1);
    }
    running.stop();  // streams may be destroyed afterwards, by any thread
  }
}

TEST_CASE("thread driver: an event after a sleep sees the time of now") {
  struct Ringing final : WatchEvents {
    Loop* loop = nullptr;
    Instant seen{};
    Gate rang;
    std::unique_ptr<Watch> watch;
    void on_ready() override {
      seen = loop->now();
      watch.reset();
      rang.open();
    }
  } ringing;
  const Fd clock(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  const itimerspec after{{0, 0}, {0, 100'000'000}};
  Instant begun{};
  Running running(k_event);
  ringing.loop = &*running.loop;
  running.run([&] {
    ringing.watch = std::move(*running.driver->port().watch(clock.get(), ringing));
    begun = running.loop->now();
    ::timerfd_settime(clock.get(), 0, &after, nullptr);
  });
  REQUIRE(ringing.rang.wait());
  CHECK(ringing.seen - begun >= 99ms);
}

TEST_CASE("thread driver: its thread is known, has signals blocked, and changes nobody else's") {
  sigset_t none;
  sigset_t before;
  sigset_t after;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, &before);
  Running running;
  ::pthread_sigmask(SIG_SETMASK, &before, &after);
  sigset_t inside;
  bool bound = false;
  running.run([&] {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &inside);
    bound = running.loop->on_loop_thread();
  });
  CHECK(bound);
  CHECK_FALSE(running.loop->on_loop_thread());
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGPIPE, SIGALRM}) {
    CHECK(sigismember(&inside, signal) == 1);
    CHECK(sigismember(&after, signal) == 0);
  }
  CHECK(sigismember(&inside, SIGSEGV) == 0);  // a fault of the thread itself still asks its handler
}

TEST_CASE("thread driver: stop from its own thread, twice, before the start, and not at all") {
  int closed = 0;
  {
    Running running;
    running.run([&] { running.driver->stop([&] { ++closed; }); });
    running.driver->stop([&] { closed += 100; });
    running.driver->join();
    CHECK(closed == 1);
    running.driver->port().wake();  // a sender that comes late
  }
  {
    const auto driver = std::move(*make_thread_driver());
    driver->stop([&] { ++closed; });
    driver->join();
    CHECK(closed == 2);
  }
  { const auto driver = std::move(*make_thread_driver()); }
}

TEST_CASE("thread driver: a hundred lives leave no descriptor behind") {
  struct NoEnd final : StreamEvents {
    void on_connected(const Result<void>&) override {}
    void on_readable() override {}
    void on_writable() override {}
  } end;
  std::size_t before = 0;
  for (int life = 0; life < 100; ++life) {
    // libuv keeps a pair for itself from the first loop of a process on.
    if (life == 1) before = open_fds();
    Door door;
    std::unique_ptr<Stream> stream;
    Running running(life % 2 == 0 ? k_event : DriverOptions{});
    running.run([&] {
      door.listener = std::move(*running.driver->port().listen(any_port(), door));
      stream = std::move(*running.driver->port().connect(door.listener->address(), 10s, end));
    });
    // Half of them are stopped with everything open, at whatever point it has reached.
    if (life % 4 < 2) running.run([&] { stream.reset(); });
  }
  CHECK(open_fds() == before);
}
