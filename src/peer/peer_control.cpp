// SPDX-License-Identifier: Apache-2.0
//
// PeerActor's control frames: fences, and barrier messages on their way through.
#include <algorithm>
#include <cerrno>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "base/planted.hpp"
#include "peer/peer_actor.hpp"

namespace hixl::peer {

bool PeerActor::send_control(wire::FrameType type, ConstBytes body) {
  if (control_.size() >= k_control_queue_max) return false;
  control_.push_back({type, std::vector<std::byte>(body.begin(), body.end())});
  pump_later();
  want();
  return true;
}

/// Any link that stands will do; R8 keeps control off those that do not, and off those that are suspected while
/// another one stands.
void PeerActor::flush_control() {
  while (!control_.empty()) {
    bool sent = false;
    for (const bool suspect : {false, true}) {
      for (const auto& link : links_) {
        sent = sent || (link->suspect() == suspect && link->send(control_.front().type, control_.front().body));
      }
    }
    if (!sent) return;
    control_.pop_front();
  }
}

void PeerActor::on_link_control(LinkActor& link, const wire::FrameHeader& header, ConstBytes body) {
  bool understood = true;
  switch (header.type) {
    case wire::FrameType::pong:
      suspects_due_ = true;
      pump_later();
      break;
    case wire::FrameType::fence_request:
      if (wire::FenceRequest message; (understood = decode_body(body, message))) on_fence_request(message);
      break;
    case wire::FrameType::fence_answer:
      if (wire::FenceAnswer message; (understood = decode_body(body, message))) {
        if (LinkActor* fenced = find(message.link_id); fenced != nullptr) {
          fenced->resolve(message.link_gen, message.executed, message.link_gen);
        }
      }
      break;
    case wire::FrameType::exchange:
      if (wire::Exchange message; (understood = decode_body(body, message))) on_exchange(message);
      break;
    case wire::FrameType::exchange_ack:
      if (wire::ExchangeAck message; (understood = decode_body(body, message))) {
        on_exchange_ack(message);
      }
      break;
    case wire::FrameType::barrier:
      if (wire::Barrier message; (understood = decode_body(body, message)))
        services_.listener.on_barrier({rank_, incarnation_}, message);
      break;
    case wire::FrameType::group_join:
      if (wire::GroupJoin message; (understood = decode_body(body, message)))
        services_.listener.on_group_join({rank_, incarnation_}, message);
      break;
    case wire::FrameType::group_answer:
      if (wire::GroupAnswer message; (understood = decode_body(body, message)))
        services_.listener.on_group_answer({rank_, incarnation_}, message);
      break;
    case wire::FrameType::bye:
      if (wire::Bye message; (understood = decode_body(body, message))) left_ = true;
      break;
    default:
      understood = false;
  }
  if (!understood) {
    services_.loop.log().warn({"control frames not understood of rank", rank_},
                              "rank {} to {}: link {} brought a control frame of type {} that is not understood",
                              services_.rank, rank_, link.id(), static_cast<int>(header.type));
    broken_links_.push_back(link.id());
    pump_later();
    return;
  }
  if (left_) pump_later();
}

/// What may not happen inside a link's own event: ending links and sessions.
void PeerActor::act_on_control() {
  for (const LinkId id : std::exchange(broken_links_, {})) {
    find(id)->fail(Error(ErrorCode::malformed_frame, {.rank = rank_, .link = id}));
  }
  if (left_) {
    left_ = false;
    end_session(Error(ErrorCode::peer_gone, {.rank = rank_}), Over::life);
  }
  for (const RegionKey key : std::exchange(gone_, {})) end_operations_to(key);
  for (const wire::FenceRequest& request : std::exchange(fences_asked_, {})) answer_fence(request);
}

// ---- fences ----

/// Asks the peer, over the links that stand in turn, what it executed of those that do not. The question is the news as
/// well that the link is broken, so it is asked also when nothing hangs on the answer.
void PeerActor::request_fences() {
  if (!session_active_) return;
  bool waiting = false;
  for (const auto& link : links_) {
    if (!link->unresolved() && !(link->peer_unaware() && link->state() == LinkActor::State::down)) continue;
    waiting = true;
    const LinkGen generation = link->unresolved() ? link->unresolved_generation() : link->last_open();
    const auto request = encoded(wire::FenceRequest{.link_id = link->id(),
                                                    .link_gen = generation,
                                                    .reason = static_cast<std::uint16_t>(link->last_error.code),
                                                    .executed = link->executed_in(generation)});
    for (std::size_t i = 0; i < links_.size(); ++i) {
      LinkActor& carrier = *links_[++fence_turn_ % links_.size()];
      if (!carrier.suspect() && carrier.send(wire::FrameType::fence_request, request)) break;
    }
  }
  if (waiting) services_.loop.start_after(fence_tick_, services_.timing.fence_repeat);
}

// ---- links that stand still ----

/// Is it the link, or the peer? Whoever answers proves that the peer lives.
void PeerActor::on_link_quiet(LinkActor& link) {
  for (const auto& other : links_) {
    if (other.get() != &link) other->ping();
  }
}

void PeerActor::on_link_suspect(LinkActor& link) {
  log::debug("rank {} to {}: nothing gets through on link {}", services_.rank, rank_, link.id());
  on_link_quiet(link);
  suspects_due_ = true;
  pump_later();
}

/// A link is given up when another one was heard since it fell silent. When all are silent it is the peer that stands
/// still, which is for its lease to judge: giving up its links would help nobody.
void PeerActor::fence_suspects() {
  suspects_due_ = false;
  for (const auto& link : links_) {
    if (!link->suspect()) continue;
    const bool heard = std::any_of(links_.begin(), links_.end(), [&](const auto& other) {
      return other != link && other->up() && other->last_heard() > link->quiet_since();
    });
    if (!heard) continue;
    services_.loop.log().warn({"links given up to rank", rank_},
                              "rank {} to {}: {} (link {}) is given up: nothing gets through, and another link does",
                              services_.rank, rank_, name(link->caps().kind), link->id());
    link->fail(Error(ErrorCode::link_failed,
                     {.rank = rank_, .link = link->id(), .stage = Stage::transfer, .os_error = ETIMEDOUT}));
  }
}

/// Siblings that work at the same time are compared by the median of their rates.
void PeerActor::compare_rates() {
  bool working = false;
  const Instant now = services_.loop.now();
  for (const auto& link : links_) {
    std::vector<std::uint64_t> rates;
    for (const auto& other : links_) {
      if (other->up() && other->caps().kind == link->caps().kind && other->health().rate() != 0) {
        rates.push_back(other->health().rate());
      }
    }
    working = working || (rates.size() > 1 && link->in_flight() > 0);
    if (rates.size() < 2 || !link->up()) continue;
    const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
    std::nth_element(rates.begin(), middle, rates.end());
    link->health().compare(*middle, now);
  }
  if (working) services_.loop.start_after(compare_tick_, k_compare_period);
}

void PeerActor::on_fence_request(const wire::FenceRequest& request) {
  // Not inline: the link to be fenced may be the one that brought this.
  if (fences_asked_.size() < links_.size() * 2) fences_asked_.push_back(request);
  pump_later();
}

void PeerActor::answer_fence(const wire::FenceRequest& request) {
  LinkActor* link = find(request.link_id);
  if (link == nullptr) return;
  if (link->last_open() == request.link_gen && !HIXL_PLANTED(fence_answered_without_closing)) {
    // What the peer found out while the link was being set up may come by this way first.
    const auto reason = static_cast<ErrorCode>(request.reason);
    link->fail(Error(!link->up() && is_refusal(reason) ? reason : ErrorCode::link_failed,
                     {.rank = rank_, .link = link->id(), .stage = Stage::fence}));
  } else if (link->dial && link->last_open() < request.link_gen && link->dial->hello().link_gen <= request.link_gen &&
             !HIXL_PLANTED(fenced_generation_opens)) {
    // The peer opened what we are still dialling; its welcome may be on the way, with frames behind it. The answer
    // says that this generation executes nothing, so it must never open.
    end_dial(*link);
    back_off(*link, Duration{});
  }
  link->resolve(request.link_gen, request.executed, request.link_gen);
  send_message(wire::FrameType::fence_answer, wire::FenceAnswer{.link_id = request.link_id,
                                                                .link_gen = request.link_gen,
                                                                .executed = link->executed_in(request.link_gen)});
}

// ---- regions of ours ----

bool PeerActor::revoke(RegionKey key) {
  bool clear = true;
  for (const auto& link : links_) clear = link->revoke(key) && clear;
  return clear;
}

void PeerActor::drop_window(std::uint32_t window_id) {
  for (const auto& link : links_) {
    if (link->up()) link->link()->drop_window(window_id);
  }
}

void PeerActor::count(Counters& counters) const {
  for (const auto& link : links_) {
    const auto kind = static_cast<std::size_t>(link->caps().kind);
    const auto traffic = link->traffic();
    counters.bytes_out[kind] += traffic.bytes_out;
    counters.bytes_in[kind] += traffic.bytes_in;
    counters.copies += traffic.copies;
    counters.staging_bytes += traffic.staging_bytes;
    counters.corrupt_chunks += traffic.corrupt;
    counters.operations += link->lane_totals().operations;
    counters.lane_operations += link->lane_totals().operations;
  }
}

}  // namespace hixl::peer
