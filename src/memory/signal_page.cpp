// SPDX-License-Identifier: Apache-2.0
//
// Marks and sleeps by futex. Pairing: the signaller stores the word, then reads the mark; a waiter sets the mark, then
// reads the word; all four are seq_cst, so one of the two sees the other.
#include "memory/signal_page.hpp"

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <new>

namespace hixl::memory {
namespace {

using namespace std::chrono_literals;
// This room has no event port, and a waiter is any thread of the program: the time left is measured here.
using Clock = std::chrono::steady_clock;

struct PageLayout {
  alignas(64) std::atomic<std::uint32_t> waiters;  ///< how many threads of the owner want to be woken
  std::atomic<std::uint32_t> rings;                ///< the futex word; changes with every wake-up
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "shared between processes");

PageLayout& layout(std::byte* data) noexcept { return *reinterpret_cast<PageLayout*>(data); }

/// Looks between two readings of the clock: some 100 ns of pauses, against 20 ns for the clock.
constexpr int k_signal_looks_per_reading = 8;

void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds time) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec relative{static_cast<time_t>(seconds.count()), static_cast<long>((time - seconds).count())};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &relative, nullptr, 0);  // every outcome means: look again
}

void ring_page(PageLayout& page) noexcept {
  if (page.waiters.load(std::memory_order_seq_cst) == 0) return;
  page.rings.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &page.rings, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace

bool holds(std::uint64_t seen, Compare compare, std::uint64_t value) noexcept {
  switch (compare) {
    case Compare::equal: return seen == value;
    case Compare::not_equal: return seen != value;
    case Compare::greater_equal: return seen >= value;
  }
  return false;
}

Result<std::unique_ptr<SignalPage>> SignalPage::create(std::chrono::nanoseconds recheck) {
  auto window = Window::create(sizeof(PageLayout), "signals");
  if (!window) return fail(window.error());
  std::unique_ptr<SignalPage> page(new SignalPage);
  page->window_ = std::move(*window);
  page->recheck_ = recheck;
  new (page->window_->data()) PageLayout{};
  return page;
}

Result<std::uint64_t> SignalPage::wait(Device& device, const std::byte* word, Compare compare, std::uint64_t value,
                                       std::chrono::nanoseconds timeout, std::chrono::nanoseconds spin) noexcept {
  const auto start = Clock::now();
  std::uint64_t seen = load_word(device, word);
  while (!holds(seen, compare, value) && Clock::now() - start < std::min(spin, timeout)) {
    for (int look = 0; look < k_signal_looks_per_reading && !holds(seen, compare, value); ++look) {
      _mm_pause();
      seen = load_word(device, word);
    }
  }
  if (holds(seen, compare, value)) return seen;

  PageLayout& page = layout(window_->data());
  page.waiters.fetch_add(1, std::memory_order_seq_cst);
  Result<std::uint64_t> result = fail(ErrorCode::deadline_exceeded, {.stage = Stage::transfer});
  for (;;) {
    const std::uint32_t rings = page.rings.load(std::memory_order_seq_cst);
    seen = load_word(device, word);
    if (holds(seen, compare, value)) {
      result = seen;
      break;
    }
    if (closed_.load(std::memory_order_seq_cst)) {
      result = fail(ErrorCode::stopped);
      break;
    }
    const auto left = timeout - (Clock::now() - start);
    if (left <= 0ns) break;
    sleep_on(page.rings, rings, std::min<std::chrono::nanoseconds>(left, recheck_));
  }
  page.waiters.fetch_sub(1, std::memory_order_seq_cst);
  return result;
}

void SignalPage::ring() noexcept { ring_page(layout(window_->data())); }

void SignalPage::close() noexcept {
  closed_.store(true, std::memory_order_seq_cst);
  ring();
}

Result<std::unique_ptr<SignalBell>> SignalBell::map(int fd) {
  auto window = MappedWindow::map(fd, sizeof(PageLayout), true);
  if (!window) return fail(window.error());
  std::unique_ptr<SignalBell> bell(new SignalBell);
  bell->window_ = std::move(*window);
  return bell;
}

void SignalBell::ring() noexcept { ring_page(layout(window_->data())); }

}  // namespace hixl::memory
