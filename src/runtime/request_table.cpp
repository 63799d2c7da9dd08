// SPDX-License-Identifier: Apache-2.0
//
// A slot's word: generation (32 bits), references (22), flags (10). Every transition is one compare-and-exchange on it,
// acquire and release, so that the error beside the word is plain data: written by finish() while the slot is pending,
// read by the one caller that takes the end.
//
//   acquire   free            → pending, one reference; generation + 1
//   finish    pending         → ended, or free when nobody holds it
//   look      ended           → free; the first look only, every other holder's request is invalid from then on
//   drop      ended, the last → free
//   promise   pending         → pending, with a callback; the callback is written in between ("writing")
//             ended           → taken; free when the loop has told the callback (request_promise.cpp)
//
// When a look meets a callback that is being written into a slot that has just ended, the later of the two frees it.
//
// A free slot may still have references: copies that never saw the end. They are counted where they are until the slot
// is acquired again; then they become strays, counted for the whole table. The one who frees a slot keeps its own
// reference until it is done, so the table cannot go away under it.
#include "runtime/request_table.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/assert.hpp"
#include "runtime/hand_turn.hpp"
#include "runtime/loop.hpp"
#include "runtime/request_slot.hpp"

namespace hixl::runtime {

namespace {

constexpr std::uint32_t k_slots_max = 131'072;
/// The owner's share of the strays: far above any number of requests, so that only retire() lets the count reach 0.
constexpr std::int64_t k_owner_share = std::int64_t{1} << 40U;
/// About 2 µs of pauses before a waiter sleeps: a wake-up costs several times that, and on two cores a longer spin
/// takes time from the loop that it waits for.
constexpr std::uint32_t k_spins = 50;
/// How long wait_for_any() sleeps when the requests belong to several tables and no one word tells of all.
constexpr Timeout k_mixed_step = std::chrono::milliseconds(1);

}  // namespace

/// Stacks of free slots, so that threads do not all meet at one word. A thread takes from the stack of its own choice,
/// and from the others when that is empty; a slot always returns to its home. The head's tag rises with every change
/// (ABA), and the head counts, so that nobody else has to.
class RequestTable::FreeList {
 public:
  FreeList(Slot* slots, std::uint32_t count)
      : slots_(slots), stacks_(std::clamp(std::bit_floor(count / k_slots_per_stack), 1U, k_stacks_max)) {
    for (std::uint32_t slot = count; slot-- > 0;) push(slot);
  }

  /// k_slots_max when all stacks were empty.
  std::uint32_t pop() noexcept {
    thread_local const char here = 0;  // its address differs between threads, and nothing else of it is used
    const auto choice = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(&here) * k_mix >> 56U);
    for (std::uint32_t i = 0; i < stacks_; ++i) {
      const std::uint32_t slot = pop_from((choice + i) % stacks_);
      if (slot != k_slots_max) return slot;
    }
    return k_slots_max;
  }

  void push(std::uint32_t slot) noexcept {
    std::atomic<Word>& head = heads_[slot % stacks_].word;
    Word old = head.load(std::memory_order_relaxed);
    do {
      slots_[slot].next.store(static_cast<std::uint32_t>(old & k_first), std::memory_order_relaxed);
    } while (!head.compare_exchange_weak(old, ((old & ~k_first) + k_one_change + k_one_free) | (slot / stacks_ + 1),
                                         std::memory_order_release, std::memory_order_relaxed));
  }

  [[nodiscard]] std::uint32_t size() const noexcept {
    Word sum = 0;
    for (const Head& head : heads_) sum += (head.word.load(std::memory_order_relaxed) & k_free) / k_one_free;
    return static_cast<std::uint32_t>(sum);
  }

 private:
  static constexpr std::uint32_t k_stacks_max = 16;       // more threads than that rarely post at once
  static constexpr std::uint32_t k_slots_per_stack = 64;  // at least: a thread's usual depth without looking elsewhere
  static constexpr std::uint64_t k_mix = 0x9e3779b97f4a7c15U;  // the golden ratio: spreads addresses over the top bits
  // Head: changes (32 bits), free slots (16), first slot's place in this stack plus one, 0 for none (16).
  static constexpr Word k_first = 0xffffU;
  static constexpr Word k_one_free = 0x10000U;
  static constexpr Word k_free = 0xffff0000U;
  static constexpr Word k_one_change = Word{1} << 32U;
  static_assert(k_slots_max / k_stacks_max < k_first);

  struct alignas(64) Head {
    std::atomic<Word> word{0};
  };

  std::uint32_t pop_from(std::uint32_t stack) noexcept {
    std::atomic<Word>& head = heads_[stack].word;
    Word old = head.load(std::memory_order_acquire);
    while ((old & k_first) != 0) {
      const std::uint32_t slot = (static_cast<std::uint32_t>(old & k_first) - 1) * stacks_ + stack;
      const Word next = slots_[slot].next.load(std::memory_order_relaxed);
      if (head.compare_exchange_weak(old, ((old & ~k_first) + k_one_change - k_one_free) | next,
                                     std::memory_order_acquire, std::memory_order_acquire)) {
        return slot;
      }
    }
    return k_slots_max;
  }

  Slot* slots_;
  std::uint32_t stacks_;
  std::array<Head, k_stacks_max> heads_;
};

RequestTable::RequestTable(std::uint32_t slots, const Loop* loop)
    : count_(slots), slots_(std::make_unique<Slot[]>(slots)), strays_(k_owner_share) {
  HIXL_ASSERT(slots >= 1 && slots <= k_slots_max);
  free_ = std::make_unique<FreeList>(slots_.get(), slots);
  if (loop != nullptr) thread_ = loop->thread();
}

RequestTable::~RequestTable() = default;

Result<RequestTable::Acquired> RequestTable::acquire() noexcept {
  const std::uint32_t slot = free_->pop();
  if (slot == k_slots_max) return fail(ErrorCode::busy, {.limit = count_});
  std::atomic<Word>& state = slots_[slot].state;
  slots_[slot].user_data = 0;
  // Only the one who took the slot from the free list changes its generation.
  const Word free = state.load(std::memory_order_acquire);
  const std::uint32_t life = generation(free) + 1;
  const Word pending = (Word{life} << k_generation_shift) | k_one_reference | k_pending;
  if (references(free) == 0) {
    // Nobody else can change the word of a free slot that nobody refers to; and a plain store need not wait until all
    // earlier ones are through.
    state.store(pending, std::memory_order_release);
  } else {
    const Word before = state.exchange(pending, std::memory_order_acq_rel);
    strays_.fetch_add(references(before), std::memory_order_relaxed);
  }
  return Acquired{slot, life};
}

void RequestTable::abandon(std::uint32_t slot) noexcept {
  std::atomic<Word>& state = slots_[slot].state;
  const Word word = state.load(std::memory_order_relaxed);
  HIXL_ASSERT((word & k_pending) != 0 && references(word) == 1);
  state.store((Word{generation(word)} << k_generation_shift) | k_taken, std::memory_order_release);
  free_->push(slot);
}

RequestTable::Ended RequestTable::finish(std::uint32_t slot, const Result<void>& result, bool seen,
                                         const Effect& effect) noexcept {
  HIXL_ASSERT(slot < count_);
  Slot& s = slots_[slot];
  Word word = s.state.load(std::memory_order_acquire);
  HIXL_ASSERT((word & k_pending) != 0);
  if (!result) s.error = result.error();
  s.effect = effect;
  Ended told{.callback = {}, .user_data = s.user_data};
  Word ended = 0;
  do {
    // One that is just being written finds the end, and asks for its own delivery.
    told.callback = (word & (k_callback | k_writing)) == k_callback ? s.callback : Callback{};
    const bool looked_at = seen || told.callback.function != nullptr;
    const Word flags = (result ? 0 : k_failed) | (looked_at ? k_seen : 0);
    ended = (word & ~(k_pending | k_waited)) | flags | (references(word) == 0 ? k_taken : 0);
  } while (!s.state.compare_exchange_weak(word, ended, std::memory_order_seq_cst, std::memory_order_acquire));

  if ((ended & k_taken) != 0) {
    told.unseen = (ended & (k_failed | k_seen)) == k_failed;
    recycle(slot, ended);
    return told;
  }
  if ((word & k_waited) != 0) {
    s.ends.fetch_add(1, std::memory_order_release);
    futex_wake_all(s.ends);
  }
  // Sequentially consistent after the exchange above, as are wait_for_event()'s announcement and look: one of the two
  // sees the other.
  if (any_waiters_.load(std::memory_order_seq_cst) != 0) {
    any_events_.fetch_add(1, std::memory_order_release);
    futex_wake_all(any_events_);
  }
  return told;
}

/// The slot's word is marked as taken already.
void RequestTable::recycle(std::uint32_t slot, std::uint64_t ended) noexcept {
  if ((ended & (k_failed | k_seen)) == k_failed) failed_unseen_.fetch_add(1, std::memory_order_relaxed);
  free_->push(slot);
}

std::uint32_t RequestTable::in_use() const noexcept { return count_ - std::min(count_, free_->size()); }

bool RequestTable::add_reference(std::uint32_t slot, std::uint32_t life) noexcept {
  std::atomic<Word>& state = slots_[slot].state;
  Word word = state.load(std::memory_order_acquire);
  for (;;) {
    if (generation(word) != life || (word & k_taken) != 0) return false;
    if ((word & k_retired) != 0) {
      strays_.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    if ((word & k_references) == k_references) return false;
    if (state.compare_exchange_weak(word, word + k_one_reference, std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
      return true;
    }
  }
}

void RequestTable::drop_reference(std::uint32_t slot, std::uint32_t life) noexcept {
  std::atomic<Word>& state = slots_[slot].state;
  Word word = state.load(std::memory_order_acquire);
  while (generation(word) == life && (word & k_retired) == 0) {
    const bool last_of_ended = references(word) == 1 && (word & (k_pending | k_taken)) == 0;
    const Word wanted = last_of_ended ? word | k_taken : word - k_one_reference;
    if (!state.compare_exchange_weak(word, wanted, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    if (!last_of_ended) return;
    recycle(slot, word);
    word = state.load(std::memory_order_acquire);
  }
  drop_stray(1);
}

void RequestTable::drop_stray(std::int64_t references) noexcept {
  if (strays_.fetch_sub(references, std::memory_order_acq_rel) == references) delete this;
}

RequestTable::Look RequestTable::look(std::uint32_t slot, std::uint32_t life, Error& error,
                                      std::uint64_t& value) noexcept {
  if (forked()) return Look::forked;
  Slot& s = slots_[slot];
  Word word = s.state.load(std::memory_order_acquire);
  do {
    if (generation(word) != life || (word & k_taken) != 0) return Look::invalid;
    if ((word & k_pending) != 0) return Look::pending;
  } while (!s.state.compare_exchange_weak(word, word | k_taken, std::memory_order_acq_rel, std::memory_order_acquire));
  if ((word & k_failed) != 0) {
    error = s.error;
  } else {
    error.code = ErrorCode::ok;
    value = s.effect.value;
  }
  // With a callback that is being written, the later one frees the slot.
  const bool alone =
      (word & k_writing) == 0 || (s.state.fetch_or(k_looked, std::memory_order_acq_rel) & k_writing) == 0;
  if (alone) recycle(slot, word | k_seen);
  drop_reference(slot, life);
  return Look::ended;
}

bool RequestTable::would_deadlock() const noexcept { return thread_ != nullptr && thread_->here(); }

bool RequestTable::forked() const noexcept { return thread_ != nullptr && thread_->forked(); }

bool RequestTable::turned_by_this_thread() const noexcept {
  return thread_ != nullptr && thread_->hand() != nullptr && thread_->hand()->drives();
}

bool RequestTable::pending(std::uint32_t slot, std::uint32_t life) const noexcept {
  const Word word = slots_[slot].state.load(std::memory_order_seq_cst);
  return generation(word) == life && (word & k_pending) != 0;
}

/// False when the operation is no longer under way; else its end will change `ends`.
bool RequestTable::mark_waited(std::uint32_t slot, std::uint32_t life) noexcept {
  std::atomic<Word>& state = slots_[slot].state;
  Word word = state.load(std::memory_order_acquire);
  do {
    if (generation(word) != life || (word & k_pending) == 0) return false;
  } while ((word & k_waited) == 0 &&
           !state.compare_exchange_weak(word, word | k_waited, std::memory_order_acq_rel, std::memory_order_acquire));
  return true;
}

Result<void> RequestTable::wait_for_end(std::uint32_t slot, std::uint32_t life, const WaitLimit& limit) noexcept {
  if (forked()) return fail(ErrorCode::forked);
  if (!pending(slot, life)) return {};
  if (would_deadlock()) return fail(ErrorCode::would_deadlock);
  HandTurn* const hand = thread_ != nullptr ? thread_->hand().get() : nullptr;
  for (std::uint32_t i = 0; i < k_spins && !limit.zero() && hand == nullptr; ++i) {
    spin_pause();
    if (!pending(slot, life)) return {};
  }
  FutexWord& ends = slots_[slot].ends;
  for (;;) {
    if (hand != nullptr && hand->drives()) {
      const HandTurn::Waited waited = hand->wait([&] { return !pending(slot, life); }, limit);
      if (waited == HandTurn::Waited::done) return {};
      if (waited == HandTurn::Waited::time_over) break;
    }
    // Read before the mark: whatever end sees the mark changes the word after this.
    const std::uint32_t before = ends.load(std::memory_order_acquire);
    if (!mark_waited(slot, life)) return {};
    const Woken woken = hand != nullptr ? hand->sleep_on(ends, before, limit) : futex_wait(ends, before, limit);
    if (woken == Woken::time_over) break;
  }
  if (!pending(slot, life)) return {};
  return fail(ErrorCode::deadline_exceeded);
}

Result<void> RequestTable::wait_for_all(std::span<const Request> requests, Timeout timeout) noexcept {
  const WaitLimit limit(timeout);
  for (const Request& request : requests) {
    if (request.table_ == nullptr) continue;
    Result<void> waited = request.table_->wait_for_end(request.slot(), request.generation(), limit);
    if (!waited) return waited;
  }
  return {};
}

Result<void> RequestTable::wait_for_any(std::span<const Request> requests, Timeout timeout) noexcept {
  HIXL_ASSERT(!requests.empty());
  bool deadlock = false;
  bool mixed = false;
  for (const Request& request : requests) {
    if (request.table_ != nullptr && request.table_->forked()) return fail(ErrorCode::forked);
  }
  for (const Request& request : requests) {
    if (request.table_ == nullptr || !request.table_->pending(request.slot(), request.generation())) return {};
    deadlock |= request.table_->would_deadlock();
    mixed |= request.table_ != requests.front().table_;
  }
  if (deadlock) return fail(ErrorCode::would_deadlock);
  const WaitLimit limit(timeout);
  if (any_pending_turns(requests)) return turn_for_any(requests, mixed, limit);
  return requests.front().table_->wait_for_event(requests, mixed, limit);
}

bool RequestTable::any_pending_turns(std::span<const Request> requests) noexcept {
  return std::ranges::any_of(requests, [](const Request& r) { return r.table_->turned_by_this_thread(); });
}

/// For the thread that turns the loops of some of the requests, or all. Another thread that begins to turn them does no
/// harm: polls of ours then do nothing, and the steps bound how late its ends are seen.
Result<void> RequestTable::turn_for_any(std::span<const Request> requests, bool mixed,
                                        const WaitLimit& limit) noexcept {
  const auto one_ended = [&] {
    return std::ranges::any_of(requests, [](const Request& r) { return !r.table_->pending(r.slot(), r.generation()); });
  };
  for (;;) {
    std::size_t work = 0;
    HandTurn* last = nullptr;
    for (const Request& request : requests) {
      HandTurn* const hand = request.table_->turned_by_this_thread() ? request.table_->thread_->hand().get() : nullptr;
      if (hand == nullptr || hand == last) continue;
      last = hand;
      work += hand->poll();
    }
    if (one_ended()) return {};
    if (limit.passed()) return fail(ErrorCode::deadline_exceeded);
    if (last == nullptr) return requests.front().table_->wait_for_event(requests, true, limit);
    if (work == 0) last->rest(limit.within(mixed ? k_mixed_step : HandTurn::k_step));
  }
}

/// All requests hold references (they were pending, and nobody looked at them since), so the tables stay.
Result<void> RequestTable::wait_for_event(std::span<const Request> requests, bool mixed,
                                          const WaitLimit& limit) noexcept {
  const auto all_pending = [&] {
    return std::ranges::all_of(requests, [](const Request& r) { return r.table_->pending(r.slot(), r.generation()); });
  };
  any_waiters_.fetch_add(1, std::memory_order_seq_cst);
  bool time_over = false;
  bool none_ended = true;
  for (;;) {
    const std::uint32_t before = any_events_.load(std::memory_order_acquire);
    none_ended = all_pending();
    if (!none_ended || time_over) break;
    HandTurn* const hand = thread_ != nullptr ? thread_->hand().get() : nullptr;
    const WaitLimit step = mixed ? limit.within(k_mixed_step) : limit;
    const Woken woken =
        hand != nullptr ? hand->sleep_on(any_events_, before, step) : futex_wait(any_events_, before, step);
    if (hand != nullptr && !mixed && hand->drives()) {  // nobody else turns
      any_waiters_.fetch_sub(1, std::memory_order_relaxed);
      return turn_for_any(requests, mixed, limit);
    }
    time_over = woken == Woken::time_over && (!mixed || limit.passed());
  }
  any_waiters_.fetch_sub(1, std::memory_order_relaxed);
  if (none_ended) return fail(ErrorCode::deadline_exceeded);
  return {};
}

void RequestTable::retire(std::unique_ptr<RequestTable> table) noexcept {
  RequestTable& self = *table.release();
  std::int64_t held = 0;
  for (std::uint32_t slot = 0; slot < self.count_; ++slot) {
    std::atomic<Word>& state = self.slots_[slot].state;
    if ((state.load(std::memory_order_acquire) & k_pending) != 0) {
      static_cast<void>(self.finish(slot, fail(ErrorCode::stopped), false));
    }
    held += references(state.fetch_or(k_retired, std::memory_order_acq_rel));
  }
  self.drop_stray(k_owner_share - held);
}

}  // namespace hixl::runtime
