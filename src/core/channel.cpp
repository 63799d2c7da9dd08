// SPDX-License-Identifier: Apache-2.0
//
// hixl::Channel: two rings, found by the tags of the regions that hold them.
#include <hixl/channel.hpp>

#include <algorithm>

#include <hixl/offers.hpp>

#include "core/message_ring.hpp"
#include "core/runtime_state.hpp"

namespace hixl {

namespace {

/// The ring for messages of rank r has this tag plus r.
constexpr std::uint32_t k_ring_tag = 0x4348'0000;
/// Between two looks at a peer whose ring ends: that takes a few round trips.
constexpr std::chrono::milliseconds k_look_pause{1};

/// Of a ring: that of no other one of its rank's life, and never 0.
constexpr std::uint64_t name_of(RegionKey key) noexcept { return std::uint64_t{key.generation} << 32U | key.id; }

}  // namespace

class Channel::State {
 public:
  State(Runtime& r, Rank p, const RingShape& s, Instant end)
      : runtime(r), core(RuntimeDoor::core(r)), peer(p), shape(s), deadline(end) {}
  ~State() {
    sender.reset();
    receiver.reset();
    const auto ended = [](void*, const Result<void>&) {};
    if (inbox.data != nullptr) static_cast<void>(runtime.deregister_async(inbox, k_default_timeout, ended, nullptr));
  }
  [[nodiscard]] Timeout left() const { return core.left(deadline); }
  /// There is no other one with that peer.
  [[nodiscard]] Result<void> check_alone();
  [[nodiscard]] Result<void> make_inbox();
  [[nodiscard]] Result<RemoteRegion> meet();
  [[nodiscard]] Result<void> tell(const RemoteRegion& ring);

  Runtime& runtime;
  core::Core& core;
  Rank peer;
  RingShape shape;
  Instant deadline;  // of the connect
  Region inbox{};
  std::unique_ptr<MessageReceiver> receiver;
  std::unique_ptr<MessageSender> sender;
};

Result<void> Channel::State::check_alone() {
  const auto known = runtime.dump_regions();
  if (!known) return fail(known.error());
  for (const OwnRegion& own : known->own) {
    if (own.tag != k_ring_tag + peer || own.state != RegionState::open) continue;
    return fail(ErrorCode::invalid_argument, {.rank = peer, .stage = Stage::connect});
  }
  return {};
}

Result<void> Channel::State::make_inbox() {
  auto region = runtime.allocate(shape.region_bytes(), {.tag = k_ring_tag + peer});
  if (!region) return fail(region.error());
  inbox = *region;
  auto made = MessageReceiver::create(runtime, inbox, 0, shape);
  if (!made) return fail(made.error());
  receiver = std::move(*made);
  return Offers::add(runtime, {&inbox, 1});
}

/// Writes at the head of their ring what mine is like and, when that is there, its name.
Result<void> Channel::State::tell(const RemoteRegion& ring) {
  constexpr std::uint64_t k_shape_bytes = core::k_ring_other_name - core::k_ring_other;
  const Signal name{.word = ring.at(core::k_ring_other_name), .value = name_of(inbox.key)};
  auto told = runtime.put_with_signal(inbox.data + core::k_ring_version, ring.at(core::k_ring_other), k_shape_bytes,
                                      name, {.timeout = left()});
  return told ? told->wait() : fail(told.error());
}

/// The ring of theirs that belongs to mine. The peer may still have, or still tell of, that of an earlier channel, so
/// both sides name their own to each other, and look again when the other one means another ring than was told.
Result<RemoteRegion> Channel::State::meet() {
  const std::uint32_t wanted = k_ring_tag + runtime.rank();
  const std::byte* const named = inbox.data + core::k_ring_other_name;
  std::uint64_t meant = 0;  // by the peer, at the last look
  for (;;) {
    const auto theirs = Offers::ask(runtime, peer, wanted, left());
    if (!theirs) return fail(theirs.error());
    const auto usable = [&](const RemoteRegion& region) {
      return region.tag == wanted && runtime.check_access(region.at(0), core::k_ring_words, Rights::all).has_value();
    };
    auto ring = std::ranges::find_if(*theirs, [&](const auto& r) { return name_of(r.key) == meant && usable(r); });
    if (ring == theirs->end()) ring = std::ranges::find_if(*theirs, usable);
    const Result<void> told =
        ring != theirs->end() ? tell(*ring) : Result<void>(fail(ErrorCode::stale, {.rank = peer}));
    if (!told) {
      if (told.error().code != ErrorCode::stale) return fail(told.error());
      // It ends, and will be told of no more. Asleep meanwhile, on a word that the peer changes when it has another.
      const auto paused =
          runtime.wait_signal(named, Compare::not_equal, meant, std::min<Timeout>(left(), k_look_pause));
      if (paused) meant = *paused;
      if (!paused && paused.error().code != ErrorCode::deadline_exceeded) return fail(paused.error());
      continue;
    }
    if (name_of(ring->key) != meant) {
      const auto word = runtime.wait_signal(named, Compare::not_equal, meant, left());
      if (!word) return fail(word.error());
      meant = *word;
    }
    if (name_of(ring->key) == meant) return *ring;
  }
}

Channel::Channel(std::unique_ptr<State> state) : state_(std::move(state)) {}
Channel::~Channel() = default;
Rank Channel::peer() const noexcept { return state_->peer; }
MessageSender& Channel::sender() noexcept { return *state_->sender; }
MessageReceiver& Channel::receiver() noexcept { return *state_->receiver; }
void Channel::close() {
  state_->sender->close();
  state_->receiver->close();
}

Result<std::unique_ptr<Channel>> Channel::connect(Runtime& runtime, Rank peer, const RingShape& shape,
                                                  Timeout timeout) {
  if (const auto valid = shape.validate(); !valid) return fail(valid.error());
  if (peer >= runtime.world_size()) {
    return fail(ErrorCode::rank_out_of_range, {.rank = peer, .stage = Stage::connect, .limit = runtime.world_size()});
  }
  const auto deadline = RuntimeDoor::core(runtime).deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  auto state = std::make_unique<State>(runtime, peer, shape, *deadline);
  if (const auto alone = state->check_alone(); !alone) return fail(alone.error());
  if (const auto made = state->make_inbox(); !made) return fail(made.error());
  const auto ring = state->meet();
  if (!ring) return fail(ring.error());
  // What the peer has said is here, even if it has given up because of it.
  const auto same = core::compare_shapes(shape, state->inbox.data + core::k_ring_other, peer);
  if (!same) return fail(same.error());
  auto sender = MessageSender::attach(runtime, ring->at(0), shape, state->left());
  if (!sender) return fail(sender.error());
  state->sender = std::move(*sender);
  return std::unique_ptr<Channel>(new Channel(std::move(state)));
}

}  // namespace hixl
