// SPDX-License-Identifier: Apache-2.0
//
// hixl::MessageSender: looks for room in the receiver's ring and puts messages there.
#include <algorithm>
#include <chrono>
#include <mutex>

#include "core/message_ring.hpp"

namespace hixl {

namespace {

using core::RingPlace;
using SendClock = std::chrono::steady_clock;

/// Memory of any kind up to this size is copied by send(): the text of notes, headers.
constexpr std::uint64_t k_copied_max = 4096;
/// Between two looks at a full ring: the receiver computes for longer.
constexpr std::chrono::milliseconds k_room_pause{1};

}  // namespace

std::uint64_t RingShape::region_bytes() const noexcept { return core::ring_data(*this) + bytes; }

Result<void> RingShape::validate() const {
  if (slots < 1 || slots > 65'536) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::options, .length = slots, .limit = 65'536});
  }
  if (bytes < 4096 || bytes > (std::uint64_t{1} << 40U) || bytes % core::k_ring_align != 0) {
    return fail(ErrorCode::invalid_argument,
                {.stage = Stage::options, .length = bytes, .limit = std::uint64_t{1} << 40U});
  }
  return {};
}

class MessageSender::State {
 public:
  State(Runtime& r, const RemoteAddress& at, const RingShape& s) : runtime(r), ring(at), shape(s) {}
  ~State() {
    if (scratch.data != nullptr)
      static_cast<void>(runtime.deregister_async(scratch, k_default_timeout, ended, nullptr));
  }
  static void ended(void*, const Result<void>&) {}

  [[nodiscard]] RemoteAddress at(std::uint64_t offset) const noexcept {
    RemoteAddress inside = ring;
    inside.address += offset;
    return inside;
  }
  [[nodiscard]] bool room_for(std::uint64_t size) const noexcept {
    return place.number - released.number < shape.slots &&
           place.begin(shape, size) + core::ring_rounded(size) - released.bytes <= shape.bytes;
  }
  /// How far the receiver has come. Atomics, since it may go on meanwhile.
  Result<void> look(Timeout timeout) {
    const auto number = runtime.fetch_add_sync(at(core::k_ring_released), 0, timeout);
    if (!number) return fail(number.error());
    const auto bytes = runtime.fetch_add_sync(at(core::k_ring_bytes_released), 0, timeout);
    if (!bytes) return fail(bytes.error());
    released = {*number, *bytes};
    return {};
  }
  Result<Request> post_here(const void* data, std::uint64_t size, const OpOptions& options);
  Result<void> catch_up(Timeout timeout);

  Runtime& runtime;
  RemoteAddress ring;
  RingShape shape;
  std::mutex mutex;  // guards what is below
  Region scratch{};
  RingPlace place{};
  RingPlace released{};  // at the last look
};

/// Under the mutex: a place is taken only by a message that was posted, so that there are no holes.
Result<Request> MessageSender::State::post_here(const void* data, std::uint64_t size, const OpOptions& options) {
  const std::uint64_t begin = place.begin(shape, size) % shape.bytes;
  const Signal signal{.word = at(place.word_offset(shape)), .value = place.word(shape, size)};
  auto request = runtime.put_with_signal(data, at(core::ring_data(shape) + begin), size, signal, options);
  if (request) place.pass(shape, size);
  return request;
}

/// What an earlier sender left that was not yet released still has its room.
Result<void> MessageSender::State::catch_up(Timeout timeout) {
  if (const auto seen = look(timeout); !seen) return seen;
  place = released;
  const std::uint64_t bytes = shape.slots * core::k_word;
  auto* const words = reinterpret_cast<std::uint64_t*>(scratch.data);
  if (const auto got = runtime.get_sync(words, at(core::k_ring_words), bytes, timeout); !got) return got;
  for (std::uint32_t i = 0; i < shape.slots; ++i) {
    const std::uint64_t word = words[place.number % shape.slots];
    const std::uint64_t size = word & ((std::uint64_t{1} << core::k_size_bits) - 1);
    if (word != place.word(shape, size) || size > shape.message_max()) break;
    place.pass(shape, size);
  }
  return {};
}

MessageSender::MessageSender(std::unique_ptr<State> state) : state_(std::move(state)) {}
MessageSender::~MessageSender() = default;

Result<std::unique_ptr<MessageSender>> MessageSender::attach(Runtime& runtime, const RemoteAddress& ring,
                                                             const RingShape& shape, Timeout timeout) {
  if (const auto valid = shape.validate(); !valid) return fail(valid.error());
  if (const auto there = runtime.check_access(ring, shape.region_bytes(), Rights::all); !there) {
    return fail(there.error());
  }
  auto state = std::make_unique<State>(runtime, ring, shape);
  auto scratch =
      runtime.allocate(std::max(k_copied_max + core::k_word, shape.slots * core::k_word), {.rights = Rights::none});
  if (!scratch) return fail(scratch.error());
  state->scratch = *scratch;
  if (const auto caught = state->catch_up(timeout); !caught) return fail(caught.error());
  return std::unique_ptr<MessageSender>(new MessageSender(std::move(state)));
}

Result<void> MessageSender::send(const void* data, std::uint64_t size, Timeout timeout) {
  State& state = *state_;
  if (size > state.shape.message_max()) {
    return fail(
        ErrorCode::invalid_argument,
        {.rank = state.ring.rank, .stage = Stage::local_check, .length = size, .limit = state.shape.message_max()});
  }
  if (timeout < Timeout{} && timeout != k_default_timeout) {
    return fail(ErrorCode::invalid_argument, {.rank = state.ring.rank, .stage = Stage::options});
  }
  if (size > 0 && data == nullptr)
    return fail(ErrorCode::invalid_argument, {.stage = Stage::local_check, .length = size});
  // The library's own default: what a call without a time has.
  const auto end = SendClock::now() + (timeout == k_default_timeout ? Timeout(std::chrono::seconds(30)) : timeout);
  const auto left = [end] { return std::max<Timeout>(end - SendClock::now(), Timeout{}); };
  std::unique_lock lock(state.mutex);
  while (!state.room_for(size)) {
    if (const auto seen = state.look(left()); !seen) return seen;
    if (state.room_for(size)) break;
    if (left() == Timeout{}) {
      return fail(ErrorCode::deadline_exceeded, {.rank = state.ring.rank, .stage = Stage::transfer, .length = size});
    }
    // Asleep on a word that nobody changes: the receiver does not know that we wait.
    lock.unlock();
    const auto paused = state.runtime.wait_signal(state.scratch.data + k_copied_max, Compare::equal, 1,
                                                  std::min<Timeout>(left(), k_room_pause));
    if (!paused && paused.error().code != ErrorCode::deadline_exceeded) return fail(paused.error());
    lock.lock();
  }
  const bool registered = size == 0 || state.runtime.check_access(data, size, Rights::read).has_value();
  const bool copied = !registered && size <= k_copied_max;
  if (copied) {
    if (const auto in = state.runtime.copy_in(state.scratch, 0, data, size); !in) return in;
  }
  auto request = state.post_here(copied ? state.scratch.data : data, size, {.timeout = left()});
  if (!request) return fail(request.error());
  if (!copied) lock.unlock();  // else the scratch is in use until the end
  return request->wait();
}

Result<Request> MessageSender::post(const void* data, std::uint64_t size, const OpOptions& options) {
  State& state = *state_;
  if (size > state.shape.message_max()) {
    return fail(
        ErrorCode::invalid_argument,
        {.rank = state.ring.rank, .stage = Stage::local_check, .length = size, .limit = state.shape.message_max()});
  }
  const std::scoped_lock lock(state.mutex);
  if (!state.room_for(size)) {
    // On a healthy window this is done at once, on any thread; elsewhere the old answer stands.
    static_cast<void>(state.look(k_default_timeout));
    if (!state.room_for(size)) return fail(ErrorCode::busy, {.rank = state.ring.rank, .limit = state.shape.slots});
  }
  return state.post_here(data, size, options);
}

}  // namespace hixl
