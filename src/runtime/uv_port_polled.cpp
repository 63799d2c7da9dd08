// SPDX-License-Identifier: Apache-2.0
//
// The driver of a loop that the program turns by hand, from whatever loop it has. One descriptor says when: an epoll
// set of libuv's own epoll set, which hears sockets and mail but not the time, and of a timerfd for the next timer. The
// timerfd also says that there is more to do at once.
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/assert.hpp"
#include "runtime/drivers.hpp"
#include "runtime/hand_turn.hpp"
#include "runtime/uv_port.hpp"

namespace hixl::runtime {
namespace {

/// Rounds a turn: an answer that comes in while the first round works is still taken along, and four bounded rounds
/// keep the program's own loop waiting for well under a millisecond.
constexpr int k_rounds = 4;

/// Until start() tells the real one.
constexpr Timeout k_first_patience = std::chrono::seconds(30);

class PolledDriver final : public Driver, private Crank {
 public:
  ~PolledDriver() override;
  [[nodiscard]] Result<void> open();

  [[nodiscard]] EventPort& port() override { return *port_; }
  Result<void> start(Loop& loop, const DriverOptions& options) override;
  void allow_spin(bool allowed) override { spin_allowed_ = allowed; }
  void stop(std::function<void()> closed) override;
  void join() override {}
  [[nodiscard]] bool own_thread() const override { return false; }

 private:
  std::size_t turn() override;
  std::size_t end_if_closed(std::size_t work);
  void set_descriptor(bool at_once);
  [[nodiscard]] Instant next_due();

  uv_loop_t uv_{};
  bool uv_open_ = false;
  std::unique_ptr<UvPort> port_;
  Fd timer_;
  Instant timer_due_ = k_never;  // what the timerfd was set to
  std::shared_ptr<HandTurn> hand_;
  Loop* loop_ = nullptr;
  bool busy_ = false;
  bool spin_allowed_ = true;
  bool stopped_ = false;
  bool drained_ = false;
  std::function<void()> closed_;
};

Result<void> PolledDriver::open() {
  if (const int error = hold_standard_descriptors(); error != 0) return fail(set_up_error(error));
  if (const int error = uv_loop_init(&uv_); error != 0) return fail(set_up_error(error));
  uv_open_ = true;
  auto port = UvPort::open(&uv_);
  if (!port) return fail(port.error());
  port_ = std::move(*port);
  timer_ = Fd(::timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC));  // the port's clock
  Fd both(::epoll_create1(EPOLL_CLOEXEC));
  if (!timer_ || !both) return fail(set_up_error(-errno));
  for (const int fd : {uv_backend_fd(&uv_), timer_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(both.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail(set_up_error(-errno));
  }
  hand_ = std::make_shared<HandTurn>(static_cast<Crank&>(*this), std::move(both), k_first_patience);
  return {};
}

/// A name look-up that is under way holds this up, as with every driver.
PolledDriver::~PolledDriver() {
  if (hand_) hand_->end();
  if (!uv_open_) return;
  if (loop_ != nullptr && !stopped_) loop_->awake();
  stopped_ = true;
  if (port_) port_->close({});
  uv_run(&uv_, UV_RUN_DEFAULT);
  const int left = uv_loop_close(&uv_);
  HIXL_ASSERT(left == 0);
}

Result<void> PolledDriver::start(Loop& loop, const DriverOptions& options) {
  HIXL_ASSERT(loop_ == nullptr);
  loop_ = &loop;
  busy_ = options.poll == PollMode::busy;
  hand_->set_patience(options.patience);
  loop.thread()->set_hand(hand_);
  set_descriptor(true);  // the first turn puts the watches into the kernel
  return {};
}

std::size_t PolledDriver::turn() {
  if (loop_ == nullptr || port_->fork_mark()->forked()) return 0;
  if (!uv_open_) return 0;  // stopped to the end
  loop_->bind_to_this_thread();
  std::size_t work = 0;
  bool more = true;
  for (int round = 0; more && round < k_rounds; ++round) {
    if (!stopped_) loop_->awake();
    more = !stopped_ && loop_->turn();
    work += more ? 1 : 0;
    // libuv's poll is a system call, which the loop does not need while it has work of its own.
    if (more && round + 1 < k_rounds) continue;
    const std::uint64_t before = port_->handles().events();
    // Behind the loop's turn, so that it hands to the kernel what the turn armed; events may arm more for the next one.
    if (!stopped_) loop_->look_at_clock();
    uv_run(&uv_, UV_RUN_NOWAIT);
    const auto events = static_cast<std::size_t>(port_->handles().events() - before);
    work += events;
    more = more || events > 0;
    if (drained_) return end_if_closed(work);
  }
  const bool at_once = more || (busy_ && spin_allowed_ && !stopped_) || (!stopped_ && !loop_->prepare_sleep());
  set_descriptor(at_once);
  loop_->thread()->unbind();
  return work;
}

/// libuv has let go of the last handle. What is told here may destroy this.
std::size_t PolledDriver::end_if_closed(std::size_t work) {
  const int left = uv_loop_close(&uv_);
  HIXL_ASSERT(left == 0);
  uv_open_ = false;
  const itimerspec never{};
  ::timerfd_settime(timer_.get(), 0, &never, nullptr);
  const std::shared_ptr<LoopThread> thread = loop_->thread();
  if (const auto closed = std::exchange(closed_, nullptr)) closed();
  thread->unbind();
  return work;
}

/// Of the loop and of libuv, whose own timers time connections out.
Instant PolledDriver::next_due() {
  uv_update_time(&uv_);
  const int timeout_ms = uv_backend_timeout(&uv_);
  const Instant uv_due = timeout_ms < 0 ? k_never : port_->now() + std::chrono::milliseconds(timeout_ms);
  return stopped_ ? uv_due : std::min(uv_due, loop_->next_due());
}

void PolledDriver::set_descriptor(bool at_once) {
  hand_->set_at_once(at_once);
  const Instant due = at_once ? Instant{} : next_due();
  if (due == timer_due_) return;  // nobody reads the timerfd: one that was due stays readable until it is set anew
  timer_due_ = due;
  itimerspec when{};
  if (due != k_never) {
    const auto at = std::max(due, Instant(Duration(1))).time_since_epoch();  // 0 would disarm
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at);
    when.it_value = {static_cast<time_t>(seconds.count()), static_cast<long>((at - seconds).count())};
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void PolledDriver::stop(std::function<void()> closed) {
  if (std::exchange(stopped_, true)) return;
  closed_ = std::move(closed);
  if (loop_ != nullptr) loop_->awake();  // for good: a sender that comes late must not look for a port to wake it by
  port_->close([this] { drained_ = true; });
}

}  // namespace

Result<std::unique_ptr<Driver>> make_polled_driver() {
  auto driver = std::make_unique<PolledDriver>();
  if (const Result<void> opened = driver->open(); !opened) return fail(opened.error());
  return driver;
}

}  // namespace hixl::runtime
