// SPDX-License-Identifier: Apache-2.0
//
// hixl::MessageReceiver: gives messages in their order and tells the sender what was released.
#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

#include "core/message_ring.hpp"
#include "core/runtime_state.hpp"

namespace hixl {

class MessageReceiver::State {
 public:
  State(Runtime& r, std::byte* at, const RingShape& s)
      : core(RuntimeDoor::core(r)), ring(at), shape(s), words(s.slots) {
    store(core::k_ring_version, core::k_ring_version_now);
    store(core::k_ring_slots, shape.slots);
    store(core::k_ring_bytes, shape.bytes);
  }

  void store(std::uint64_t offset, std::uint64_t value) noexcept {
    // Release: pairs with the sender's atomic look, after which it writes where this thread has read.
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(ring + offset))
        .store(value, std::memory_order_release);
  }
  /// Under the mutex.
  void tell_released() noexcept {
    store(core::k_ring_bytes_released, released.bytes);
    store(core::k_ring_released, released.number);
  }

  /// The message that this word tells of. Under the mutex.
  [[nodiscard]] Result<Message> take(const std::byte* at, std::uint64_t word);

  struct Held {
    std::uint64_t end = 0;  // bytes, as RingPlace::bytes
    bool released = false;
  };
  core::Core& core;
  std::byte* ring;
  RingShape shape;
  std::mutex mutex;  // guards what is below; never held while waiting
  bool closed = false;
  core::RingPlace place{};
  std::vector<std::uint64_t> words;  // as they were seen last
  std::deque<Held> held;             // from released.number on
  core::RingPlace released{};
};

MessageReceiver::MessageReceiver(std::unique_ptr<State> state) : state_(std::move(state)) {}
MessageReceiver::~MessageReceiver() = default;

Result<std::unique_ptr<MessageReceiver>> MessageReceiver::create(Runtime& runtime, const Region& region,
                                                                 std::uint64_t offset, const RingShape& shape) {
  if (const auto valid = shape.validate(); !valid) return fail(valid.error());
  if (region.kind != MemoryKind::host || offset % core::k_ring_align != 0) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::local_check, .address = region.address() + offset});
  }
  if (offset > region.size || shape.region_bytes() > region.size - offset) {
    return fail(ErrorCode::out_of_range, {.stage = Stage::local_check,
                                          .address = region.address() + offset,
                                          .length = shape.region_bytes(),
                                          .nearest_base = region.address(),
                                          .nearest_length = region.size});
  }
  return std::unique_ptr<MessageReceiver>(
      new MessageReceiver(std::make_unique<State>(runtime, region.data + offset, shape)));
}

/// Threads that wait for the same message wait side by side; those that do not get it wait for the next one.
Result<Message> MessageReceiver::receive(Timeout timeout) {
  State& state = *state_;
  if (const auto admitted = state.core.admit(); !admitted) return fail(admitted.error());
  const auto deadline = state.core.deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  std::unique_lock lock(state.mutex);
  for (;;) {
    if (state.closed) return fail(ErrorCode::cancelled, {.stage = Stage::transfer});
    const std::uint64_t number = state.place.number;
    const std::byte* const at = state.ring + state.place.word_offset(state.shape);
    const std::uint64_t before = state.words[number % state.shape.slots];
    lock.unlock();
    const auto word = state.core.wait_signal(at, Compare::not_equal, before, state.core.left(*deadline));
    if (!word) {
      // One look needs no waiting, so it is no mistake on the loop thread either.
      const bool looked = word.error().code == ErrorCode::would_deadlock && timeout == Timeout{};
      return fail(looked ? Error(ErrorCode::deadline_exceeded, {.stage = Stage::transfer}) : word.error());
    }
    lock.lock();
    if (!state.closed && state.place.number == number) return state.take(at, *word);
  }
}

Result<Message> MessageReceiver::State::take(const std::byte* at, std::uint64_t word) {
  const std::uint64_t size = word & ((std::uint64_t{1} << core::k_size_bits) - 1);
  if (word != place.word(shape, size) || size > shape.message_max()) {
    return fail(ErrorCode::corrupt, {.stage = Stage::local_check,
                                     .address = reinterpret_cast<std::uint64_t>(at),
                                     .length = size,
                                     .limit = shape.message_max()});
  }
  const std::uint64_t begin = place.begin(shape, size) % shape.bytes;
  const Message message{.data = ring + core::ring_data(shape) + begin, .size = size, .number = place.number};
  held.push_back({.end = place.begin(shape, size) + core::ring_rounded(size)});
  words[place.number % shape.slots] = word;
  place.pass(shape, size);
  return message;
}

/// Who waits sees another word, at the latest with its next look (memory::k_recheck).
void MessageReceiver::close() {
  State& state = *state_;
  if (state.core.forked()) return;
  const std::scoped_lock lock(state.mutex);
  state.closed = true;
  const std::uint64_t before = state.words[state.place.number % state.shape.slots];
  state.store(state.place.word_offset(state.shape), before + 1);
}

Result<void> MessageReceiver::release(std::uint64_t number) {
  State& state = *state_;
  if (state.core.forked()) return fail(ErrorCode::forked, {.stage = Stage::local_check});
  const std::scoped_lock lock(state.mutex);
  const std::uint64_t index = number - state.released.number;
  if (index >= state.held.size() || state.held[index].released) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::local_check, .length = number});
  }
  state.held[index].released = true;
  if (index != 0) return {};
  while (!state.held.empty() && state.held.front().released) {
    state.released = {state.released.number + 1, state.held.front().end};
    state.held.pop_front();
  }
  state.tell_released();
  return {};
}

}  // namespace hixl
