// SPDX-License-Identifier: Apache-2.0
//
// hixl::MessageSender: looks for room in the receiver's ring and puts messages there.
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <mutex>

#include "core/message_ring.hpp"
#include "core/runtime_state.hpp"

namespace hixl {

namespace {

using core::RingPlace;

/// Memory of any kind up to this size is copied by send(): the text of notes, headers.
constexpr std::uint64_t k_copied_max = 4096;
/// So many threads send such memory at once; one more waits for a pause.
constexpr std::uint32_t k_copies_max = 8;
/// Between two looks at a full ring: the receiver computes for longer.
constexpr std::chrono::milliseconds k_room_pause{1};

// The sender's own memory: what was read of the ring's head, a word that nobody changes, then copies; in the beginning,
// instead of these, the words of the ring.
constexpr std::uint64_t k_scratch_pause = core::k_ring_words;
constexpr std::uint64_t k_scratch_data = k_scratch_pause + core::k_ring_align;

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
  State(Runtime& r, const RemoteAddress& at, const RingShape& s)
      : runtime(r), core(RuntimeDoor::core(r)), ring(at), shape(s) {}
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
  [[nodiscard]] Timeout left(Instant deadline) const { return core.left(deadline); }
  [[nodiscard]] Result<void> check(const void* data, std::uint64_t size) const;
  [[nodiscard]] Result<void> compare_shapes(Instant deadline);
  [[nodiscard]] Result<void> catch_up(Instant deadline);

  /// How far the receiver has come. Atomics, since it may go on meanwhile; either number is true by itself.
  [[nodiscard]] Result<void> look(Instant deadline);
  /// The same without waiting: takes the answer of an earlier question, and asks again. Under the mutex.
  void look_later();
  [[nodiscard]] bool has_room(std::uint64_t size) {
    const std::scoped_lock lock(mutex);
    return room_for(size);
  }
  /// Under the mutex, as what follows.
  [[nodiscard]] bool room_for(std::uint64_t size) const noexcept {
    return place.number - released.number < shape.slots &&
           place.begin(shape, size) + core::ring_rounded(size) - released.bytes <= shape.bytes;
  }
  [[nodiscard]] Result<Request> post_here(const void* data, std::uint64_t size, const OpOptions& options);

  /// A message under way, and which copy it comes from.
  struct Sent {
    Request request;
    std::uint32_t copy = k_copies_max;
  };
  /// BUSY: there is no room now, or no copy.
  [[nodiscard]] Result<Sent> post_sent(const void* data, std::uint64_t size, bool copied, Instant deadline);
  void give_back(std::uint32_t copy) {
    if (copy == k_copies_max) return;
    const std::scoped_lock lock(mutex);
    copies &= ~(1U << copy);
  }

  Runtime& runtime;
  core::Core& core;
  RemoteAddress ring;
  RingShape shape;
  Region scratch{};
  std::mutex mutex;  // guards what is below; never held while waiting, so that post() may take it on the loop thread
  bool closed = false;
  std::uint32_t copies = 0;  // bits of those in use
  RingPlace place{};
  RingPlace released{};            // at the last look
  std::array<Request, 2> asked{};  // of look_later(): messages, bytes
};

Result<void> MessageSender::State::check(const void* data, std::uint64_t size) const {
  if (size > shape.message_max()) {
    return fail(ErrorCode::invalid_argument,
                {.rank = ring.rank, .stage = Stage::local_check, .length = size, .limit = shape.message_max()});
  }
  if (size > 0 && data == nullptr)
    return fail(ErrorCode::invalid_argument, {.stage = Stage::local_check, .length = size});
  return {};
}

/// What the receiver has written at the head of its ring; before anything else there is believed.
Result<void> MessageSender::State::compare_shapes(Instant deadline) {
  const auto got = runtime.get_sync(scratch.data, ring, core::k_ring_words, left(deadline));
  return got ? core::compare_shapes(shape, scratch.data + core::k_ring_version, ring.rank) : got;
}

Result<void> MessageSender::State::look(Instant deadline) {
  const auto number = runtime.fetch_add_sync(at(core::k_ring_released), 0, left(deadline));
  if (!number) return fail(number.error());
  const auto bytes = runtime.fetch_add_sync(at(core::k_ring_bytes_released), 0, left(deadline));
  if (!bytes) return fail(bytes.error());
  const std::scoped_lock lock(mutex);
  released = {std::max(released.number, *number), std::max(released.bytes, *bytes)};
  return {};
}

void MessageSender::State::look_later() {
  const auto look = [this](Request& question, std::uint64_t offset, std::uint64_t& known) {
    const auto answer = question.value();
    if (!answer && answer.error().code == ErrorCode::busy) return;  // it is under way
    if (answer) known = std::max(known, *answer);
    auto next = runtime.fetch_add(at(offset), 0);
    question = next ? std::move(*next) : Request();
  };
  look(asked[0], core::k_ring_released, released.number);
  look(asked[1], core::k_ring_bytes_released, released.bytes);
}

/// A place is taken only by a message that was posted, so that there are no holes.
Result<Request> MessageSender::State::post_here(const void* data, std::uint64_t size, const OpOptions& options) {
  const std::uint64_t begin = place.begin(shape, size) % shape.bytes;
  const Signal signal{.word = at(place.word_offset(shape)), .value = place.word(shape, size)};
  auto request = runtime.put_with_signal(data, at(core::ring_data(shape) + begin), size, signal, options);
  if (request) place.pass(shape, size);
  return request;
}

Result<MessageSender::State::Sent> MessageSender::State::post_sent(const void* data, std::uint64_t size, bool copied,
                                                                   Instant deadline) {
  const std::scoped_lock lock(mutex);
  if (closed) return fail(ErrorCode::cancelled, {.rank = ring.rank, .stage = Stage::transfer});
  if (!room_for(size)) return fail(ErrorCode::busy, {.rank = ring.rank, .limit = shape.slots});
  const Timeout time = left(deadline);
  if (time == Timeout{}) {
    return fail(ErrorCode::deadline_exceeded, {.rank = ring.rank, .stage = Stage::transfer, .length = size});
  }
  Sent sent;
  const void* from = data;
  if (copied) {
    sent.copy = static_cast<std::uint32_t>(std::countr_one(copies));
    if (sent.copy == k_copies_max) return fail(ErrorCode::busy, {.limit = k_copies_max});
    const std::uint64_t offset = k_scratch_data + sent.copy * k_copied_max;
    if (const auto in = runtime.copy_in(scratch, offset, data, size); !in) return fail(in.error());
    from = scratch.data + offset;
  }
  auto request = post_here(from, size, {.timeout = time});
  if (!request) return fail(request.error());
  sent.request = std::move(*request);
  if (copied) copies |= 1U << sent.copy;
  return sent;
}

/// What an earlier sender left that was not yet released still has its room.
Result<void> MessageSender::State::catch_up(Instant deadline) {
  if (const auto seen = look(deadline); !seen) return seen;
  place = released;
  const std::uint64_t bytes = shape.slots * core::k_word;
  auto* const words = reinterpret_cast<std::uint64_t*>(scratch.data + k_scratch_data);
  if (const auto got = runtime.get_sync(words, at(core::k_ring_words), bytes, left(deadline)); !got) return got;
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
  auto state = std::make_unique<State>(runtime, ring, shape);
  const auto deadline = state->core.deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  if (const auto there = runtime.check_access(ring, core::k_ring_words, Rights::all); !there) {
    return fail(there.error());
  }
  const std::uint64_t data = std::max(k_copies_max * k_copied_max, shape.slots * core::k_word);
  auto scratch = runtime.allocate(k_scratch_data + data, {.rights = Rights::none});
  if (!scratch) return fail(scratch.error());
  state->scratch = *scratch;
  if (const auto same = state->compare_shapes(*deadline); !same) return fail(same.error());
  if (const auto there = runtime.check_access(ring, shape.region_bytes(), Rights::all); !there) {
    return fail(there.error());
  }
  if (const auto caught = state->catch_up(*deadline); !caught) return fail(caught.error());
  return std::unique_ptr<MessageSender>(new MessageSender(std::move(state)));
}

Result<void> MessageSender::send(const void* data, std::uint64_t size, Timeout timeout) {
  State& state = *state_;
  if (const auto valid = state.check(data, size); !valid) return valid;
  if (const auto admitted = state.core.admit(); !admitted) return admitted;
  if (state.core.on_loop_thread()) return fail(ErrorCode::would_deadlock, {.rank = state.ring.rank});
  const auto deadline = state.core.deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  const bool registered = size == 0 || state.runtime.check_access(data, size, Rights::read).has_value();
  const bool copied = !registered && size <= k_copied_max;
  for (;;) {
    auto sent = state.post_sent(data, size, copied, *deadline);
    if (sent) {
      auto ended = sent->request.wait();
      state.give_back(sent->copy);
      return ended;
    }
    if (sent.error().code != ErrorCode::busy) return fail(sent.error());
    if (!state.has_room(size)) {
      if (const auto seen = state.look(*deadline); !seen) return seen;
      if (state.has_room(size)) continue;
    }
    if (state.left(*deadline) == Timeout{}) {
      return fail(ErrorCode::deadline_exceeded, {.rank = state.ring.rank, .stage = Stage::transfer, .length = size});
    }
    // Asleep on a word that nobody changes: the receiver does not know that we wait.
    const auto paused = state.runtime.wait_signal(state.scratch.data + k_scratch_pause, Compare::equal, 1,
                                                  std::min<Timeout>(state.left(*deadline), k_room_pause));
    if (!paused && paused.error().code != ErrorCode::deadline_exceeded) return fail(paused.error());
  }
}

Result<Request> MessageSender::post(const void* data, std::uint64_t size, const OpOptions& options) {
  State& state = *state_;
  if (const auto valid = state.check(data, size); !valid) return fail(valid.error());
  if (const auto admitted = state.core.admit(); !admitted) return fail(admitted.error());
  const std::scoped_lock lock(state.mutex);
  if (state.closed) return fail(ErrorCode::cancelled, {.rank = state.ring.rank, .stage = Stage::transfer});
  if (!state.room_for(size)) state.look_later();
  if (!state.room_for(size)) return fail(ErrorCode::busy, {.rank = state.ring.rank, .limit = state.shape.slots});
  return state.post_here(data, size, options);
}

void MessageSender::close() {
  if (state_->core.forked()) return;
  const std::scoped_lock lock(state_->mutex);
  state_->closed = true;
}

}  // namespace hixl
