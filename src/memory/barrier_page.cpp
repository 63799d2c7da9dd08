// SPDX-License-Identifier: Apache-2.0
//
// Pairing: who enters stores its number, then reads all others'; so of the two that enter last at least one sees all.
// Who waits by message marks itself before it enters, who releases reads the marks after it has released, and a marked
// one looks again after its mark: all seq_cst. The word is read before the state and slept on while it has not changed.
#include "memory/barrier_page.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <limits>
#include <string>

namespace hixl::memory {

namespace {

constexpr std::size_t k_line_bytes = 64;

}  // namespace

struct BarrierPage::Layout {
  struct alignas(k_line_bytes) Member {
    std::atomic<std::uint64_t> entered;
    std::atomic<std::uint32_t> open;
    std::atomic<std::uint32_t> by_message;
    std::atomic<std::uint32_t> over;  // ErrorCode
  };
  alignas(k_line_bytes) std::atomic<std::uint64_t> challenge;
  std::atomic<std::uint64_t> released;
  std::atomic<std::uint32_t> rings;   // the futex word
  std::atomic<std::uint32_t> marked;  // some member is over
  Member members[k_members_max];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

BarrierPage::Layout& BarrierPage::layout() const noexcept { return *reinterpret_cast<Layout*>(data_); }

Result<std::shared_ptr<BarrierPage>> BarrierPage::create(std::vector<Rank> ranks, std::size_t place,
                                                         std::uint64_t challenge) {
  if (ranks.size() > k_members_max)
    return fail(ErrorCode::limit_reached, {.stage = Stage::group, .limit = k_members_max});
  auto window = Window::create(sizeof(Layout), "barrier");
  if (!window) return fail(window.error());
  std::shared_ptr<BarrierPage> page(new BarrierPage(std::move(ranks), place));
  page->own_ = std::move(*window);
  page->data_ = page->own_->data();
  page->layout().challenge.store(challenge);
  page->layout().members[place].open.store(1);
  return page;
}

Result<std::shared_ptr<BarrierPage>> BarrierPage::open(const Location& location, std::vector<Rank> ranks,
                                                       std::size_t place) {
  if (ranks.size() > k_members_max || location.process == 0)
    return fail(ErrorCode::unsupported, {.stage = Stage::group});
  const std::string path = "/proc/" + std::to_string(location.process) + "/fd/" + std::to_string(location.descriptor);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return fail(ErrorCode::unsupported, {.stage = Stage::group});
  auto window = MappedWindow::map(fd, sizeof(Layout), true);
  ::close(fd);
  if (!window) return fail(window.error());
  std::shared_ptr<BarrierPage> page(new BarrierPage(std::move(ranks), place));
  page->mapped_ = std::move(*window);
  page->data_ = page->mapped_->data();
  if (page->layout().challenge.load() != location.challenge)
    return fail(ErrorCode::wrong_peer, {.stage = Stage::group});
  page->layout().members[place].open.store(1);
  return page;
}

BarrierPage::Location BarrierPage::location() const noexcept {
  if (!own_) return {};
  return {.process = static_cast<std::uint64_t>(getpid()),
          .descriptor = static_cast<std::uint32_t>(own_->fd()),
          .challenge = layout().challenge.load()};
}

bool BarrierPage::shared() const noexcept {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (layout().members[i].open.load() == 0) return false;
  }
  return true;
}

void BarrierPage::start(std::uint64_t number) noexcept {
  if (started()) return;
  passed_ = number;  // nobody takes the turn before started()
  started_.store(true, std::memory_order_release);
}

bool BarrierPage::enter(Wake wake) noexcept {
  Layout& page = layout();
  const std::uint64_t number = passed_ + 1;
  page.members[place_].by_message.store(wake == Wake::by_message ? 1 : 0);
  page.members[place_].entered.store(number);
  bool messages = false;
  if (page.marked.load() != 0) return false;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (page.members[i].entered.load() < number) return false;
  }
  std::uint64_t released = page.released.load();
  while (released < number && !page.released.compare_exchange_weak(released, number)) {
  }
  ring();
  for (std::size_t i = 0; i < ranks_.size(); ++i) messages = messages || (i != place_ && waits_for_message(i));
  return messages;
}

BarrierPage::State BarrierPage::look() const noexcept {
  if (layout().released.load() > passed_) return State::released;
  const bool broken = layout().marked.load() != 0 || broken_.load(std::memory_order_acquire);
  return broken ? State::broken : State::waiting;
}

std::uint32_t BarrierPage::rings() const noexcept { return layout().rings.load(); }

void BarrierPage::ring() noexcept {
  std::atomic<std::uint32_t>& word = layout().rings;
  word.fetch_add(1);
  syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

void BarrierPage::await_ring(std::uint32_t rings, std::chrono::nanoseconds time) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec relative{static_cast<time_t>(seconds.count()), static_cast<long>((time - seconds).count())};
  // Every outcome means: look again.
  syscall(SYS_futex, &layout().rings, FUTEX_WAIT, rings, &relative, nullptr, 0);
}

void BarrierPage::leave() noexcept {
  Layout& page = layout();
  page.members[place_].by_message.store(0);
  if (page.released.load() > passed_) passed_ += 1;
  turn_.store(false, std::memory_order_release);
}

bool BarrierPage::has_entered(std::size_t place) const noexcept {
  return layout().members[place].entered.load() > passed_;
}

bool BarrierPage::waits_for_message(std::size_t place) const noexcept {
  return layout().members[place].by_message.load() != 0;
}

void BarrierPage::break_with(const Error& why) noexcept {
  {
    const std::scoped_lock lock(error_mutex_);
    if (error_.code == ErrorCode::ok) error_ = why;
  }
  broken_.store(true, std::memory_order_release);
  ring();  // others on the page look once for nothing
}

void BarrierPage::mark(std::size_t place, ErrorCode why) noexcept {
  Layout& page = layout();
  std::uint32_t none = 0;
  page.members[place].over.compare_exchange_strong(none, static_cast<std::uint32_t>(why));
  page.marked.store(1);
  ring();
}

Error BarrierPage::error() const noexcept {
  {
    const std::scoped_lock lock(error_mutex_);
    if (error_.code != ErrorCode::ok) return error_;
  }
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const std::uint32_t over = layout().members[i].over.load();
    if (over == 0) continue;
    // Others write here: nothing but what mark() is given is believed.
    const bool gone = over == static_cast<std::uint32_t>(ErrorCode::peer_gone);
    return Error(gone ? ErrorCode::peer_gone : ErrorCode::peer_lost, {.rank = ranks_[i], .stage = Stage::barrier});
  }
  return Error(ErrorCode::peer_lost, {.stage = Stage::barrier});
}

}  // namespace hixl::memory
