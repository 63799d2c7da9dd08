// SPDX-License-Identifier: Apache-2.0
//
// The two drivers on libuv. Both keep the same order: turn; if nothing is left to do, announce sleep and set the
// alarm for the next timer; poll; and before the first event of that poll is delivered, announce the waking, so that
// now() is right in it and senders stop making system calls.
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "base/assert.hpp"
#include "runtime/drivers.hpp"
#include "runtime/uv_port.hpp"

namespace hixl::runtime {
namespace {

/// How often a spinning thread asks the kernel for events. Asking costs some 0.3 µs, a look at the mailbox a tenth of
/// that. With nothing else to do, every 2 µs: an answer over tcp (26 µs at best) is seen 1 µs late on average. With
/// mail or completions in every turn, every 20 µs: sockets then cost 2 % at most. When a look found something, more is
/// likely to follow, and the next turn looks again.
constexpr Duration k_look_idle{2'000};
constexpr Duration k_look_working{20'000};

void cpu_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // "yield" is a no-op on most cores
#endif
}

/// Ends a poll of the loop in time. The kernel's poll counts CLOCK_MONOTONIC: after a suspend a sleep may go on for as
/// long as was left of it, and the loop sees the lost time as its own lag.
/// The idle handle matters: libuv runs due timers before it polls, so a timer that is due by then would be spent before
/// the sleep that it was to end.
class Alarm final : private TimerTarget {
 public:
  [[nodiscard]] int open(UvHandles& handles) {
    const int error = timer_.open(handles, *this);
    return error != 0 ? error : no_sleep_.open(handles);
  }
  /// The next poll ends by then; a time that has passed: it does not sleep at all.
  void set(Instant due, Instant now) {
    no_sleep_.set(due <= now);
    if (due <= now || due == k_never) return timer_.stop();
    timer_.start(due - now);
  }

 private:
  void on_timeout() override { no_sleep_.set(true); }
  UvTimer timer_;
  UvNoSleep no_sleep_;
};

/// A thread cannot run the program's signal handlers by accident when it has every signal blocked from its first
/// instruction. Those that a fault of its own raises stay open: blocked, they would kill without a handler being asked.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// ---- a thread of our own ----

class ThreadDriver final : public Driver, private EventHook {
 public:
  ~ThreadDriver() override {
    stop({});
    join();
  }
  [[nodiscard]] Result<void> open();

  [[nodiscard]] EventPort& port() override { return *port_; }
  Result<void> start(Loop& loop, const DriverOptions& options) override;
  void allow_spin(bool allowed) override { spin_allowed_ = allowed; }
  void stop(std::function<void()> closed) override;
  void join() override;
  [[nodiscard]] bool own_thread() const override { return true; }

 private:
  void run();
  /// Delivers events that are there; true when there were any.
  bool look();
  void sleep();
  void shut();
  void before_event() override;
  [[nodiscard]] bool may_spin() const noexcept;

  uv_loop_t uv_{};
  bool uv_open_ = false;
  std::unique_ptr<UvPort> port_;
  Alarm alarm_;
  Loop* loop_ = nullptr;
  DriverOptions options_;
  bool spin_allowed_ = true;
  bool slept_ = false;   // and has not told the loop yet that it woke
  Instant last_work_{};  // spinning counts from here
  Instant last_look_{};
  std::thread thread_;
  std::atomic<bool> stop_asked_{false};    // the first caller of stop() wins
  std::atomic<bool> stop_ordered_{false};  // store-release once closed_ is in place, load-acquire in run()
  std::function<void()> closed_;
};

Result<void> ThreadDriver::open() {
  if (const int error = hold_standard_descriptors(); error != 0) return fail(set_up_error(error));
  if (const int error = uv_loop_init(&uv_); error != 0) return fail(set_up_error(error));
  uv_open_ = true;
  auto port = UvPort::open(&uv_);
  if (!port) return fail(port.error());
  port_ = std::move(*port);
  if (const int error = alarm_.open(port_->handles()); error != 0) return fail(set_up_error(error));
  port_->handles().set_hook(this);
  return {};
}

Result<void> ThreadDriver::start(Loop& loop, const DriverOptions& options) {
  HIXL_ASSERT(loop_ == nullptr);
  loop_ = &loop;
  options_ = options;
  const SignalsBlocked inherited_by_the_thread;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    loop_ = nullptr;
    return fail(ErrorCode::limit_reached, {.stage = Stage::options, .os_error = error.code().value()});
  }
  return {};
}

bool ThreadDriver::may_spin() const noexcept {
  if (!spin_allowed_ || options_.poll == PollMode::event) return false;
  return options_.poll == PollMode::busy || loop_->now() - last_work_ < options_.spin;
}

void ThreadDriver::run() {
  pthread_setname_np(pthread_self(), "hixl-loop");
  loop_->bind_to_this_thread();
  while (!stop_ordered_.load(std::memory_order_acquire)) {
    if (loop_->thread()->forked()) return;  // a callback forked, and the child came back here: this loop is not its own
    bool worked = loop_->turn();
    if (loop_->now() - last_look_ >= (worked ? k_look_working : k_look_idle)) worked = look() || worked;
    if (worked) {
      last_work_ = loop_->now();
    } else if (may_spin()) {
      cpu_pause();
    } else if (loop_->prepare_sleep()) {
      sleep();
    } else if (!spin_allowed_) {
      // Something is outstanding that nobody will wake us for. Others need the core more than we need to look.
      std::this_thread::yield();
    }
  }
  shut();
}

bool ThreadDriver::look() {
  const std::uint64_t before = port_->handles().events();
  loop_->look_at_clock();
  uv_run(&uv_, UV_RUN_NOWAIT);
  const bool found = port_->handles().events() != before;
  last_look_ = found ? Instant{} : loop_->now();
  return found;
}

void ThreadDriver::sleep() {
  const std::uint64_t before = port_->handles().events();
  slept_ = true;
  alarm_.set(loop_->next_due(), port_->now());
  uv_run(&uv_, UV_RUN_ONCE);
  before_event();  // for a sleep that ended without one
  last_look_ = loop_->now();
  if (port_->handles().events() != before) last_work_ = loop_->now();
}

void ThreadDriver::before_event() {
  if (std::exchange(slept_, false)) loop_->awake();
}

void ThreadDriver::stop(std::function<void()> closed) {
  if (stop_asked_.exchange(true, std::memory_order_relaxed)) return;
  closed_ = std::move(closed);
  stop_ordered_.store(true, std::memory_order_release);
  if (port_) port_->wake();
}

void ThreadDriver::join() {
  if (thread_.joinable()) {
    HIXL_ASSERT(thread_.get_id() != std::this_thread::get_id());
    thread_.join();
  } else if (uv_open_ && loop_ == nullptr && stop_ordered_.load(std::memory_order_acquire)) {
    shut();  // it never ran
  }
}

/// A name look-up that is being made cannot be called off, and libuv needs its loop until it returns: the resolver's
/// own time limit (seconds) is the bound of this.
void ThreadDriver::shut() {
  if (port_) port_->close({});
  uv_run(&uv_, UV_RUN_DEFAULT);
  const int left = uv_loop_close(&uv_);
  HIXL_ASSERT(left == 0);
  uv_open_ = false;
  if (const auto closed = std::exchange(closed_, nullptr)) closed();
}

// ---- the loop of a host program ----

/// Turns before the host's loop polls, for what the host's own callbacks asked, and after, for what came in. Between
/// two rounds sleep is announced even though the host may be computing: it may as well wait outside uv_run, on
/// uv_backend_fd(), and would then miss mail that makes no noise.
class HostedDriver final : public Driver, private EventHook, private PhaseTarget {
 public:
  [[nodiscard]] Result<void> open(uv_loop_t* host);

  [[nodiscard]] EventPort& port() override { return *port_; }
  Result<void> start(Loop& loop, const DriverOptions& options) override;
  void allow_spin(bool allowed) override { spin_allowed_ = allowed; }
  void stop(std::function<void()> closed) override;
  void join() override {}
  [[nodiscard]] bool own_thread() const override { return false; }

 private:
  void on_before_poll() override { round(); }
  void on_after_poll() override { round(); }
  void before_event() override;
  void round();

  std::unique_ptr<UvPort> port_;
  Alarm alarm_;
  UvBeforePoll before_;
  UvAfterPoll after_;
  Loop* loop_ = nullptr;
  bool busy_ = false;
  bool spin_allowed_ = true;
  bool in_round_ = false;  // the loop knows that it is awake, and the time
  bool stopped_ = false;
};

Result<void> HostedDriver::open(uv_loop_t* host) {
  if (const int error = hold_standard_descriptors(); error != 0) return fail(set_up_error(error));
  auto port = UvPort::open(host);
  if (!port) return fail(port.error());
  port_ = std::move(*port);
  return {};
}

Result<void> HostedDriver::start(Loop& loop, const DriverOptions& options) {
  HIXL_ASSERT(loop_ == nullptr);
  int error = alarm_.open(port_->handles());
  if (error == 0) error = before_.open(port_->handles(), *this);
  if (error == 0) error = after_.open(port_->handles(), *this);
  if (error != 0) return fail(set_up_error(error));
  loop_ = &loop;
  loop_->bind_to_this_thread();
  busy_ = options.poll == PollMode::busy;
  port_->handles().set_hook(this);
  return {};
}

void HostedDriver::before_event() {
  if (std::exchange(in_round_, true)) return;
  loop_->bind_to_this_thread();  // who calls uv_run now need not be who called it last time
  loop_->awake();
}

void HostedDriver::round() {
  if (loop_->thread()->forked()) return;
  before_event();
  const bool more = loop_->turn();
  if (stopped_) return;  // in that turn: no more sleep is announced
  const bool polls_at_once = more || (busy_ && spin_allowed_) || !loop_->prepare_sleep();
  const Instant now = port_->now();
  alarm_.set(polls_at_once ? now : loop_->next_due(), now);
  in_round_ = false;
}

void HostedDriver::stop(std::function<void()> closed) {
  if (std::exchange(stopped_, true)) return;
  if (loop_ != nullptr) loop_->awake();  // for good: a sender that comes late must not look for a port to wake it by
  port_->close(std::move(closed));
}

}  // namespace

Result<std::unique_ptr<Driver>> make_thread_driver() {
  auto driver = std::make_unique<ThreadDriver>();
  if (const Result<void> opened = driver->open(); !opened) return fail(opened.error());
  return driver;
}

Result<std::unique_ptr<Driver>> make_hosted_driver(uv_loop_s* host) {
  if (host == nullptr) return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
  auto driver = std::make_unique<HostedDriver>();
  if (const Result<void> opened = driver->open(host); !opened) return fail(opened.error());
  return driver;
}

}  // namespace hixl::runtime
