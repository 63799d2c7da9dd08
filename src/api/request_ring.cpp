// SPDX-License-Identifier: Apache-2.0
#include "api/request_ring.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "api/world.hpp"

namespace hixl::api {

namespace {

/// Places that a thread takes from the shared cursor at once: eight posts share one step on its cache line.
constexpr std::uint32_t k_run = 8;
/// A run is given up when so many places were taken since: the ring may have come round, and what is left of the run
/// hold answers that were given a moment ago.
constexpr std::uint32_t k_stale = 64 * k_run;

/// The generation after that of a place's word; never 0.
constexpr std::uint64_t next_life(std::uint64_t word) noexcept {
  return std::max<std::uint64_t>(((word >> 32U) + 1) & 0xffffffffU, 1);
}

}  // namespace

std::optional<ErrorCode> RequestRing::code_of(Handle handle) noexcept {
  if (handle.kind() != HandleKind::failed || handle.epoch() != 0 || handle.generation() != k_failed) return {};
  const auto code = static_cast<ErrorCode>(handle.index());
  const bool known = handle.index() <= 0xffffU && code != ErrorCode::ok && name(code) != "UNKNOWN";
  return known ? std::optional(code) : std::nullopt;
}

RequestRing::Slot* RequestRing::find(std::uint32_t index) noexcept {
  Chunk* const chunk =
      index / k_chunk < k_chunks_max ? chunks_[index / k_chunk].load(std::memory_order_acquire) : nullptr;
  return chunk == nullptr ? nullptr : &(*chunk)[index % k_chunk];
}

void RequestRing::reserve(std::uint32_t requests_max) {
  const std::scoped_lock guard(mutex_);
  const std::uint64_t wanted = wanted_ + 2 * std::uint64_t{requests_max};
  const std::uint64_t most = std::uint64_t{k_chunk} * k_chunks_max;
  std::uint32_t size = size_.load(std::memory_order_relaxed);
  for (; size < std::min(wanted + k_stale, most); size += k_chunk) {
    auto* const chunk = new Chunk();
    for (Slot& slot : *chunk) slot.ring = this;
    chunks_[size / k_chunk].store(chunk, std::memory_order_release);
    size_.store(size + k_chunk, std::memory_order_release);
  }
  wanted_ = wanted;
}

void RequestRing::release(std::uint32_t requests_max) {
  const std::scoped_lock guard(mutex_);
  wanted_ -= 2 * std::uint64_t{requests_max};
}

Result<RequestRing::Place> RequestRing::take(ThreadNote& note) {
  const std::uint32_t size = size_.load(std::memory_order_acquire);
  for (std::uint32_t tries = 0; tries < size; ++tries) {
    if (note.cursor % k_run == 0 || cursor_.load(std::memory_order_relaxed) - note.cursor > k_stale) {
      note.cursor = cursor_.fetch_add(k_run, std::memory_order_relaxed);
    }
    const std::uint32_t index = note.cursor++ % size;
    Slot& slot = *find(index);
    std::uint64_t word = slot.word.load(std::memory_order_relaxed);
    if ((word & 0xffffffffU) != 0) continue;  // in use
    const std::uint64_t generation = next_life(word);
    const std::uint64_t locked = generation << 32U | k_locked;
    if (!slot.word.compare_exchange_strong(word, locked, std::memory_order_acquire)) continue;
    return Place(slot, locked,
                 Handle::make(HandleKind::request, epoch_, index, static_cast<std::uint32_t>(generation)));
  }
  return fail(ErrorCode::busy, {.limit = size});
}

RequestRing::Place::~Place() {
  if (slot_ == nullptr) return;
  slot_->request = Request();
  RequestRing::unlock(*slot_, word_ & ~(k_locked | k_calling));
}

Callback RequestRing::Place::call(hixl_callback_t function, void* user_data) noexcept {
  slot_->callback = function;
  slot_->user_data = user_data;
  word_ |= k_calling;
  return {&RequestRing::on_end, slot_};
}

Handle RequestRing::Place::fill(Request&& request) noexcept {
  Slot& slot = *std::exchange(slot_, nullptr);
  slot.request = std::move(request);
  RequestRing::unlock(slot, (word_ & ~k_locked) | k_open);
  return handle_;
}

/// Null: no request of that life is here. Else locked; the word without the lock is that of the handle.
RequestRing::Slot* RequestRing::lock(Handle handle) noexcept {
  Slot* const slot = handle.kind() == HandleKind::request ? find(handle.index()) : nullptr;
  if (slot == nullptr) return nullptr;
  for (;;) {
    std::uint64_t word = slot->word.load(std::memory_order_acquire);
    if (word >> 32U != handle.generation()) return nullptr;
    if ((word & k_locked) == 0 &&
        slot->word.compare_exchange_weak(word, word | k_locked, std::memory_order_acquire, std::memory_order_relaxed)) {
      return slot;
    }
    std::this_thread::yield();  // a few instructions of another thread
  }
}

/// Looks at the request of a locked place and unlocks it.
Result<void> RequestRing::settle(Slot& slot, std::uint64_t word) noexcept {
  // With a copy out, only who has the copy can see the end; it is told when that one has brought it back.
  if ((word & k_open) != 0 && (word & k_copies) != 0) {
    unlock(slot, word);
    return fail(ErrorCode::busy);
  }
  if ((word & k_open) != 0 && slot.request.done()) word &= ~k_open;
  const Result<void> result = slot.request.query();
  unlock(slot, word);
  return result;
}

Result<void> RequestRing::query(Handle handle) {
  if (const auto code = code_of(handle)) return fail(*code);
  Slot* const slot = lock(handle);
  if (slot == nullptr) return fail(ErrorCode::invalid_request);
  return settle(*slot, slot->word.load(std::memory_order_relaxed) & ~k_locked);
}

Result<void> RequestRing::wait(Handle handle, Timeout timeout) {
  if (const auto now = query(handle); now || now.error().code != ErrorCode::busy) return now;
  auto copy = borrow(handle);
  if (!copy) return fail(copy.error());
  const auto waited = copy->wait(timeout);
  const bool ended = copy->done();
  const auto told = give_back(handle, std::move(*copy));
  return ended ? told : waited;
}

Result<Request> RequestRing::borrow(Handle handle) {
  if (const auto code = code_of(handle)) return Request::ended(fail(*code));
  Slot* const slot = lock(handle);
  if (slot == nullptr) return fail(ErrorCode::invalid_request);
  const std::uint64_t word = slot->word.load(std::memory_order_relaxed) & ~k_locked;
  Request copy(slot->request);
  const bool counted = (word & k_copies) != k_copies;
  unlock(*slot, counted ? word + 1 : word);
  if (!counted) return fail(ErrorCode::busy, {.limit = k_copies});
  return copy;
}

Result<void> RequestRing::give_back(Handle handle, Request&& copy) {
  if (code_of(handle)) return copy.query();
  for (bool counted = true;;) {
    Slot* const slot = lock(handle);
    if (slot == nullptr) return copy.query();  // it was looked at, and its place has come round
    std::uint64_t word = slot->word.load(std::memory_order_relaxed) & ~k_locked;
    if (std::exchange(counted, false)) word -= 1;
    const bool open = (word & k_open) != 0;
    const Result<void> seen = open ? copy.query() : slot->request.query();
    const bool taken = !seen && seen.error().code == ErrorCode::invalid_request;
    if (!open || !taken || (word & k_copies) == 0) {
      if (open && copy.done()) {
        slot->request = std::move(copy);
        word &= ~k_open;
      }
      unlock(*slot, word);
      return seen;
    }
    // Another thread's copy has seen the end, and is about to bring it.
    unlock(*slot, word);
    std::this_thread::yield();
  }
}

Result<void> RequestRing::cancel(Handle handle) {
  if (code_of(handle)) return {};
  Slot* const slot = lock(handle);
  if (slot == nullptr) return fail(ErrorCode::invalid_request);
  const std::uint64_t word = slot->word.load(std::memory_order_relaxed) & ~k_locked;
  const Result<void> asked = slot->request.cancel();
  unlock(*slot, word);
  return asked;
}

Result<void> RequestRing::drop(Handle handle) {
  if (code_of(handle)) return {};
  Slot* const slot = lock(handle);
  if (slot == nullptr) return fail(ErrorCode::invalid_request);
  const std::uint64_t word = slot->word.load(std::memory_order_relaxed) & ~k_locked;
  if ((word & (k_copies | k_calling)) != 0) {  // somebody waits for it, or will be told
    unlock(*slot, word);
    return fail(ErrorCode::busy);
  }
  slot->request = Request();
  // Another generation: who still has the handle is told so.
  unlock(*slot, next_life(word) << 32U);
  return {};
}

/// On the loop thread, after the end. The place is its own until the callback was called.
void RequestRing::on_end(void* place, const Completion& completion) {
  Slot& slot = *static_cast<Slot*>(place);
  std::uint64_t word = 0;
  for (;;) {  // who posted may still be filling the place
    word = slot.word.load(std::memory_order_acquire);
    if ((word & k_locked) == 0 &&
        slot.word.compare_exchange_weak(word, word | k_locked, std::memory_order_acquire, std::memory_order_relaxed)) {
      break;
    }
    std::this_thread::yield();
  }
  const hixl_callback_t function = slot.callback;
  void* const user_data = slot.user_data;
  // The program is told now, so that this is a look at the end, unless somebody waits, who will see it.
  if ((word & k_open) != 0 && (word & k_copies) == 0 && slot.request.done()) word &= ~k_open;
  unlock(slot, word & ~k_calling);
  const auto status = static_cast<hixl_status_t>(completion.result ? ErrorCode::ok : completion.result.error().code);
  ThreadNote& note = World::get().note();
  note.callbacks += 1;
  try {
    function(status, user_data);
  } catch (...) {
    note.callbacks -= 1;
    throw;  // the runtime counts it
  }
  note.callbacks -= 1;
}

}  // namespace hixl::api
