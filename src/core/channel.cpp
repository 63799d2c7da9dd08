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

}  // namespace

class Channel::State {
 public:
  State(Runtime& r, Rank p) : runtime(r), peer(p) {}
  ~State() {
    sender.reset();
    receiver.reset();
    const auto ended = [](void*, const Result<void>&) {};
    if (inbox.data != nullptr) static_cast<void>(runtime.deregister_async(inbox, k_default_timeout, ended, nullptr));
  }
  Runtime& runtime;
  Rank peer;
  Region inbox{};
  std::unique_ptr<MessageReceiver> receiver;
  std::unique_ptr<MessageSender> sender;
};

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
  core::Core& core = RuntimeDoor::core(runtime);
  const auto deadline = core.deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  const auto left = [&] { return std::max<Timeout>(*deadline - core.loop().port().now(), Timeout{}); };
  const auto known = runtime.dump_regions();
  if (!known) return fail(known.error());
  for (const OwnRegion& own : known->own) {
    if (own.tag != k_ring_tag + peer || own.state != RegionState::open) continue;
    return fail(ErrorCode::invalid_argument, {.rank = peer, .stage = Stage::connect});
  }
  auto state = std::make_unique<State>(runtime, peer);
  auto inbox = runtime.allocate(shape.region_bytes(), {.tag = k_ring_tag + peer});
  if (!inbox) return fail(inbox.error());
  state->inbox = *inbox;
  auto receiver = MessageReceiver::create(runtime, *inbox, 0, shape);
  if (!receiver) return fail(receiver.error());
  state->receiver = std::move(*receiver);
  if (const auto offered = Offers::add(runtime, {&*inbox, 1}); !offered) return fail(offered.error());
  const std::uint32_t wanted = k_ring_tag + runtime.rank();
  const auto theirs = Offers::ask(runtime, peer, wanted, left());
  if (!theirs) return fail(theirs.error());
  // One of an earlier channel may still be told of, though it has ended.
  auto ring = std::ranges::find_if(*theirs, [&](const RemoteRegion& region) {
    return region.tag == wanted && runtime.check_access(region.at(0), core::k_ring_words, Rights::all).has_value();
  });
  if (ring == theirs->end()) ring = std::ranges::find(*theirs, wanted, &RemoteRegion::tag);
  auto sender = MessageSender::attach(runtime, ring->at(0), shape, left());
  if (!sender) return fail(sender.error());
  state->sender = std::move(*sender);
  return std::unique_ptr<Channel>(new Channel(std::move(state)));
}

}  // namespace hixl
