// SPDX-License-Identifier: Apache-2.0
#include <hixl/completion_queue.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/queue_state.hpp"

namespace hixl {

namespace core {

namespace {

constexpr std::uint32_t k_capacity_max = 1U << 20U;
/// As long as a waiter of a request spins: about 2 µs, against some 10 µs for a wake-up.
constexpr std::uint32_t k_spins = 50;
/// How long a thread that turns one loop sleeps when others end operations as well, of which its descriptor is silent.
constexpr Timeout k_mixed_step = std::chrono::milliseconds(1);
constexpr std::uint64_t k_one_change = std::uint64_t{1} << 32U;

constexpr std::uint32_t first_of(std::uint64_t head) { return static_cast<std::uint32_t>(head); }

}  // namespace

Result<std::shared_ptr<QueueState>> QueueState::create(std::uint32_t capacity) {
  if (capacity == 0 || capacity > k_capacity_max) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::options, .length = capacity, .limit = k_capacity_max});
  }
  runtime::Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) {
    const bool limit = errno == EMFILE || errno == ENFILE;
    return fail(limit ? ErrorCode::fd_limit : ErrorCode::os_error, {.stage = Stage::options, .os_error = errno});
  }
  return std::make_shared<QueueState>(capacity, std::move(event));
}

QueueState::QueueState(std::uint32_t capacity, runtime::Fd event)
    : places_(capacity), free_(0), event_(std::move(event)) {
  for (std::uint32_t place = 0; place + 1 < capacity; ++place) {
    places_[place].next.store(place + 1, std::memory_order_relaxed);
  }
}

// ---- posts ----

Result<std::uint32_t> QueueState::reserve(const std::shared_ptr<runtime::LoopThread>& thread) {
  meet(thread);
  std::uint64_t head = free_.load(std::memory_order_acquire);
  std::uint64_t wanted = 0;
  do {
    if (first_of(head) == k_none) return fail(ErrorCode::busy, {.limit = capacity()});
    wanted =
        ((head & ~std::uint64_t{k_none}) + k_one_change) | places_[first_of(head)].next.load(std::memory_order_relaxed);
  } while (!free_.compare_exchange_weak(head, wanted, std::memory_order_acq_rel, std::memory_order_acquire));
  in_use_.fetch_add(1, std::memory_order_relaxed);
  return first_of(head);
}

void QueueState::give_back(std::uint32_t place) noexcept {
  in_use_.fetch_sub(1, std::memory_order_relaxed);
  std::uint64_t head = free_.load(std::memory_order_relaxed);
  do {
    places_[place].next.store(first_of(head), std::memory_order_relaxed);
  } while (!free_.compare_exchange_weak(head, ((head & ~std::uint64_t{k_none}) + k_one_change) | place,
                                        std::memory_order_acq_rel, std::memory_order_relaxed));
}

/// A few runtimes share a queue at most, so the first look finds them; the lock is for a runtime's first post.
void QueueState::meet(const std::shared_ptr<runtime::LoopThread>& thread) {
  for (const auto& met : met_) {
    if (met.load(std::memory_order_acquire) == thread.get()) return;
  }
  const std::scoped_lock lock(threads_mutex_);
  if (std::ranges::find(threads_, thread) != threads_.end()) return;
  // The place of one whose runtime and requests are gone, so that a queue may outlive many of them.
  auto place = std::ranges::find_if(threads_, [](const auto& known) { return known.use_count() == 1; });
  if (place == threads_.end()) place = threads_.insert(threads_.end(), nullptr);
  const auto index = static_cast<std::size_t>(place - threads_.begin());
  if (index < met_.size()) met_[index].store(thread.get(), std::memory_order_release);
  *place = thread;
}

bool QueueState::would_deadlock() {
  const std::scoped_lock lock(threads_mutex_);
  return std::ranges::any_of(threads_, [](const auto& thread) { return thread->here(); });
}

// ---- loops ----

bool QueueState::deliver(std::uint32_t place, const Completion& completion) noexcept {
  if (closed_.load(std::memory_order_acquire)) {
    give_back(place);
    return false;
  }
  places_[place].completion = completion;
  std::uint32_t before = ready_.load(std::memory_order_relaxed);
  do {
    places_[place].next.store(before, std::memory_order_relaxed);
  } while (!ready_.compare_exchange_weak(before, place, std::memory_order_seq_cst, std::memory_order_relaxed));
  // Who made it non-empty rings; whoever empties it looks again after having said so. All of this is sequentially
  // consistent with the pollers' side, so one of the two sees the other.
  if (before != k_none) return true;
  if (wanted_.load(std::memory_order_seq_cst)) signal();
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    events_.fetch_add(1, std::memory_order_release);
    runtime::futex_wake_all(events_);
  }
  return true;
}

void QueueState::signal() noexcept {
  if (signalled_.exchange(true, std::memory_order_seq_cst)) return;
  const std::uint64_t one = 1;
  static_cast<void>(::write(event_.get(), &one, sizeof(one)));  // cannot fill up: at most 1 is in it
}

// ---- the program ----

int QueueState::fd() noexcept {
  if (mark_.forked()) return -1;
  const std::scoped_lock lock(pollers_);
  wanted_.store(true, std::memory_order_seq_cst);
  if (first_ != k_none || ready_.load(std::memory_order_seq_cst) != k_none) signal();
  return event_.get();
}

/// Turns the newest-first list around. False when there is nothing.
bool QueueState::take_ready() noexcept {
  std::uint32_t place = ready_.exchange(k_none, std::memory_order_seq_cst);
  while (place != k_none) {
    const std::uint32_t older = places_[place].next.load(std::memory_order_relaxed);
    places_[place].next.store(first_, std::memory_order_relaxed);
    first_ = std::exchange(place, older);
  }
  return first_ != k_none;
}

std::size_t QueueState::poll(std::span<Completion> out) {
  if (mark_.forked()) return 0;
  const std::scoped_lock lock(pollers_);
  std::size_t count = 0;
  while (count < out.size() && (first_ != k_none || take_ready())) {
    const std::uint32_t place = first_;
    out[count++] = places_[place].completion;
    first_ = places_[place].next.load(std::memory_order_relaxed);
    give_back(place);
  }
  if (first_ == k_none) quiet();
  return count;
}

/// Everything was taken: the descriptor is no longer readable, unless something came meanwhile. When its writer has set
/// the flag and not yet written, the flag stays: the descriptor is readable soon, and the next poll reads it.
void QueueState::quiet() noexcept {
  if (!signalled_.load(std::memory_order_seq_cst) || ready_.load(std::memory_order_seq_cst) != k_none) return;
  std::uint64_t value = 0;
  if (::read(event_.get(), &value, sizeof(value)) != static_cast<ssize_t>(sizeof(value))) return;
  signalled_.store(false, std::memory_order_seq_cst);
  if (ready_.load(std::memory_order_seq_cst) != k_none) signal();
}

Result<std::size_t> QueueState::wait(std::span<Completion> out, Timeout timeout) {
  if (mark_.forked()) return fail(ErrorCode::forked);
  if (out.empty() || timeout < Timeout{}) return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
  std::size_t count = poll(out);
  if (count > 0) return count;
  if (would_deadlock()) return fail(ErrorCode::would_deadlock);
  const runtime::WaitLimit limit(timeout);
  for (std::uint32_t i = 0; i < k_spins && !limit.zero(); ++i) {
    runtime::spin_pause();
    if (ready_.load(std::memory_order_relaxed) != k_none) break;
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  bool time_over = false;
  for (std::size_t round = 0;; ++round) {
    const std::uint32_t before = events_.load(std::memory_order_acquire);
    const bool drives = turn_driven(limit);
    count = poll(out);
    if (count > 0 || time_over) break;
    if (!drives) await_event(before, round, limit);
    time_over = limit.passed();
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  if (count == 0) return fail(ErrorCode::deadline_exceeded);
  return count;
}

/// What of a queue's loops is turned by hand. Copies, since they are turned without the lock.
std::vector<std::shared_ptr<runtime::LoopThread>> QueueState::turned_by_hand() {
  const std::scoped_lock lock(threads_mutex_);
  std::vector<std::shared_ptr<runtime::LoopThread>> found;
  for (const auto& thread : threads_) {
    if (thread->hand() != nullptr) found.push_back(thread);
  }
  return found;
}

/// Where this thread drives loops, it turns each once, and rests if there was nothing to do. False: it drives none.
bool QueueState::turn_driven(const runtime::WaitLimit& limit) {
  std::size_t work = 0;
  std::shared_ptr<runtime::LoopThread> last;
  for (auto& thread : turned_by_hand()) {
    if (!thread->hand()->drives()) continue;
    work += thread->hand()->poll();
    last = std::move(thread);
  }
  if (last == nullptr) return false;
  if (work > 0 || ready_.load(std::memory_order_seq_cst) != k_none) return true;
  // Its descriptor tells nothing of other loops.
  const bool alone = [this] {
    const std::scoped_lock lock(threads_mutex_);
    return threads_.size() == 1;
  }();
  last->hand()->rest(limit.within(alone ? runtime::HandTurn::k_step : k_mixed_step));
  return true;
}

/// Loops that nobody has turned for their patience are turned by who waits; the rounds look at one after another.
void QueueState::await_event(std::uint32_t before, std::size_t round, const runtime::WaitLimit& limit) {
  const auto hands = turned_by_hand();
  if (hands.empty()) {
    static_cast<void>(runtime::futex_wait(events_, before, limit));
  } else {
    static_cast<void>(hands[round % hands.size()]->hand()->sleep_on(events_, before, limit));
  }
}

}  // namespace core

// ---- the public shell ----

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create(std::uint32_t capacity) {
  auto state = core::QueueState::create(capacity);
  if (!state) return fail(state.error());
  return std::unique_ptr<CompletionQueue>(new CompletionQueue(std::move(*state)));
}

CompletionQueue::CompletionQueue(std::shared_ptr<core::QueueState> state) noexcept : state_(std::move(state)) {}
CompletionQueue::~CompletionQueue() { state_->close(); }

int CompletionQueue::fd() { return state_->fd(); }
std::size_t CompletionQueue::poll(std::span<Completion> out) { return state_->poll(out); }
Result<std::size_t> CompletionQueue::wait(std::span<Completion> out, Timeout timeout) {
  return state_->wait(out, timeout);
}
std::uint32_t CompletionQueue::in_use() const noexcept { return state_->in_use(); }
std::uint32_t CompletionQueue::capacity() const noexcept { return state_->capacity(); }

}  // namespace hixl
