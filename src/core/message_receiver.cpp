// SPDX-License-Identifier: Apache-2.0
//
// hixl::MessageReceiver: gives messages in their order and tells the sender what was released.
#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

#include "core/message_ring.hpp"

namespace hixl {

class MessageReceiver::State {
 public:
  State(Runtime& r, std::byte* at, const RingShape& s) : runtime(r), ring(at), shape(s), words(s.slots) {}

  void tell_released() noexcept {
    const auto store = [this](std::uint64_t offset, std::uint64_t value) {
      // Release: pairs with the sender's atomic look, after which it writes where this thread has read.
      std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(ring + offset))
          .store(value, std::memory_order_release);
    };
    store(core::k_ring_bytes_released, released.bytes);
    store(core::k_ring_released, released.number);
  }

  struct Held {
    std::uint64_t end = 0;  // bytes, as RingPlace::bytes
    bool released = false;
  };
  Runtime& runtime;
  std::byte* ring;
  RingShape shape;
  std::mutex taking;  // one waits for the next message at a time
  core::RingPlace place{};
  std::vector<std::uint64_t> words;  // as they were seen last
  std::mutex mutex;                  // guards what is below; never held while waiting
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

Result<Message> MessageReceiver::receive(Timeout timeout) {
  State& state = *state_;
  const std::scoped_lock taking(state.taking);
  const std::byte* const at = state.ring + state.place.word_offset(state.shape);
  std::uint64_t& before = state.words[state.place.number % state.shape.slots];
  const auto word = state.runtime.wait_signal(at, Compare::not_equal, before, timeout);
  if (!word) return fail(word.error());
  const std::uint64_t size = *word & ((std::uint64_t{1} << core::k_size_bits) - 1);
  if (*word != state.place.word(state.shape, size) || size > state.shape.message_max()) {
    return fail(ErrorCode::corrupt, {.stage = Stage::local_check,
                                     .address = reinterpret_cast<std::uint64_t>(at),
                                     .length = size,
                                     .limit = state.shape.message_max()});
  }
  before = *word;
  const std::uint64_t begin = state.place.begin(state.shape, size) % state.shape.bytes;
  const Message message{
      .data = state.ring + core::ring_data(state.shape) + begin, .size = size, .number = state.place.number};
  state.place.pass(state.shape, size);
  const std::scoped_lock lock(state.mutex);
  state.held.push_back({.end = state.place.bytes});
  return message;
}

Result<void> MessageReceiver::release(std::uint64_t number) {
  State& state = *state_;
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
