// SPDX-License-Identifier: Apache-2.0
//
// PeerActor's exchange of addresses: our regions go to the peer until it has acknowledged them, the peer's become known
// here, and a waiting program is served when both have happened.
#include <algorithm>

#include "base/log.hpp"
#include "base/planted.hpp"
#include "peer/peer_actor.hpp"
#include "peer/remote_region.hpp"

namespace hixl::peer {

namespace {

/// Descriptors of one exchange frame: 1 000 of 62 bytes stay below the body limit.
constexpr std::size_t k_regions_a_frame = wire::k_descriptors_max;

}  // namespace

// ---- ours ----

void PeerActor::exchange(std::vector<wire::RegionDescriptor> mine, const ExchangeWait& wait) {
  Waiter waiter{.number = 0, .regions = mine, .wait = wait};
  if (stopping_) {
    waiter.refused = Error(ErrorCode::stopped, {.rank = rank_, .stage = Stage::shutdown});
  } else if (publishing_.size() >= k_exchanges_open_max) {
    waiter.refused = Error(ErrorCode::busy, {.rank = rank_, .stage = Stage::exchange, .limit = k_exchanges_open_max});
  }
  if (waiter.refused.code != ErrorCode::ok) {
    waiters_.push_back(waiter);
    look_at_exchanges_by(services_.loop.now());
    return;
  }
  for (const wire::RegionDescriptor& region : mine) published_.insert_or_assign(region.key.id, region);
  exchanges_out_ += 1;
  publishing_.push_back({.number = exchanges_out_, .regions = std::move(mine), .stream = wait.stream});
  waiter.number = exchanges_out_;
  waiters_.push_back(waiter);
  publish();
  want();
  look_at_exchanges_by(std::min(wait.deadline, services_.loop.now() + services_.timing.repeat));
  exchange_ready_ = true;
  pump_later();
}

/// The tick never moves to a later time: whoever exchanges often would else keep others from their deadline.
void PeerActor::look_at_exchanges_by(Instant time) {
  if (!exchange_tick_.active() || exchange_tick_.due() > time) services_.loop.start(exchange_tick_, time);
}

/// A peer that lost the session, or came back in a new life, learns our regions again without our program's help, so
/// that its handles work as before.
void PeerActor::publish_again() {
  std::erase_if(published_, [this](const auto& entry) { return !services_.regions.info(entry.second.key); });
  if (published_.empty()) return;
  OutExchange out{.number = ++exchanges_out_, .regions = {}, .stream = {.note = wire::ExchangeNote::told}};
  for (const auto& [id, region] : published_) out.regions.push_back(region);
  publishing_.push_back(std::move(out));
  look_at_exchanges_by(services_.loop.now() + services_.timing.repeat);
}

/// Queues what has not been queued yet, as far as there is room; the pump goes on.
void PeerActor::publish() {
  if (best_up() == nullptr) return;
  for (OutExchange& out : publishing_) {
    while (!out.queued_whole) {
      const std::size_t first = out.regions_queued;
      const std::size_t last = std::min(first + k_regions_a_frame, out.regions.size());
      wire::Exchange message{.number = out.number,
                             .first = static_cast<std::uint32_t>(first),
                             .total = static_cast<std::uint32_t>(out.regions.size()),
                             .note = out.stream.note,
                             .group = out.stream.group,
                             .regions = {}};
      message.regions.assign(out.regions.begin() + static_cast<std::ptrdiff_t>(first),
                             out.regions.begin() + static_cast<std::ptrdiff_t>(last));
      if (!send_message(wire::FrameType::exchange, message)) return;
      out.regions_queued = last;
      out.queued_whole = last == out.regions.size();
    }
  }
}

/// Sends again every exchange that was not acknowledged; a repeat is recognised by its number.
void PeerActor::publish_unacknowledged() {
  if (!control_.empty() || HIXL_PLANTED(exchange_told_once)) return;  // the first time is not over yet
  for (OutExchange& out : publishing_) {
    if (!std::exchange(out.queued_whole, false)) break;
    out.regions_queued = 0;
  }
  publish();
}

void PeerActor::on_exchange_ack(const wire::ExchangeAck& message) {
  std::erase_if(publishing_, [&](const OutExchange& out) { return out.number <= message.number; });
  exchanges_acknowledged_ = std::max(exchanges_acknowledged_, std::min(message.number, exchanges_out_));
  match_exchanges();
  serve_questions();  // for which there was no room
}

void PeerActor::on_exchange_tick() {
  const Instant now = services_.loop.now();
  for (std::size_t i = 0; i < waiters_.size();) {
    const Waiter waiter = waiters_[i];
    if (waiter.wait.deadline > now && waiter.refused.code == ErrorCode::ok) {
      ++i;
      continue;
    }
    waiters_.erase(waiters_.begin() + static_cast<std::ptrdiff_t>(i));
    match_exchanges();  // the next one may have been ready behind it
    const Error error = waiter.refused.code != ErrorCode::ok ? waiter.refused : too_late(Stage::exchange);
    waiter.wait.done(waiter.wait.context, PeerAddresses{.rank = rank_, .result = fail(error), .regions = {}});
  }
  publish_unacknowledged();
  if (waiters_.empty() && publishing_.empty()) return;
  Instant next = now + services_.timing.repeat;
  for (const Waiter& waiter : waiters_) next = std::min(next, waiter.wait.deadline);
  look_at_exchanges_by(std::max(next, now + std::chrono::milliseconds(1)));
}

// ---- the peer's ----

void PeerActor::on_exchange(const wire::Exchange& message) {
  if (message.number <= exchanges_in_) {  // a repeat of one that arrived whole
    send_message(wire::FrameType::exchange_ack, wire::ExchangeAck{.number = exchanges_in_});
    return;
  }
  // Whatever is not taken now comes again.
  if (message.number != exchanges_in_ + 1 || arrived_whole_ || !room_for_exchange()) return;
  if (message.first == 0 && arriving_.number != message.number) arriving_ = {.number = message.number};
  if (message.number != arriving_.number || message.first != arriving_.seen) return;
  arriving_.stream = {message.note, message.group};
  for (const wire::RegionDescriptor& region : message.regions) {
    arriving_.seen += 1;
    if (arriving_.regions.size() < services_.regions_max) {
      arriving_.regions.push_back(region);
    } else {
      refuse_region(Error(ErrorCode::limit_reached, {.rank = rank_,
                                                     .stage = Stage::exchange,
                                                     .address = region.base,
                                                     .length = region.length,
                                                     .limit = services_.regions_max}));
    }
  }
  if (arriving_.seen < message.total) return;
  arrived_whole_ = true;
  for (const wire::RegionDescriptor& region : arriving_.regions) {
    if (const auto added = memory_.remotes.add(remote_region(region, rank_, incarnation_)); !added) {
      refuse_region(added.error());
      continue;
    }
    if (const auto old = known_.find(region.key.id); old != known_.end() && old->second.key != region.key) {
      region_gone(old->second.key);
    }
    known_[region.key.id] = region;
    for (const auto& link : links_) {
      if (link->up() && link->link()->attach(region) == links::Answer::posted) attaching_ += 1;
    }
  }
  arrived_exchange_settled();
}

/// The others are accepted; program and log are told of the first one that was not. A region that is none is the peer's
/// fault and not that of a call here.
void PeerActor::refuse_region(Error error) {
  if (arriving_.refused.code != ErrorCode::ok) return;
  const bool is_none = error.code == ErrorCode::invalid_argument || error.code == ErrorCode::out_of_range;
  if (is_none) error.code = ErrorCode::malformed_frame;
  services_.loop.log().warn({"regions not accepted of rank", rank_},
                            "rank {} to {}: a region it published was not accepted: {}", services_.rank, rank_,
                            error.message());
  arriving_.refused = error;
}

/// Those of groups that are no more are never taken; they give way to what comes.
bool PeerActor::room_for_exchange() {
  if (arrived_.size() < k_exchanges_open_max) return true;
  const auto dead = std::find_if(arrived_.begin(), arrived_.end(), [this](const ArrivedExchange& arrived) {
    const ExchangeStream& stream = arrived.stream;
    return stream.note == wire::ExchangeNote::exchange && stream.group != 0 &&
           !services_.listener.has_group(stream.group);
  });
  if (dead == arrived_.end()) return false;
  arrived_.erase(dead);
  return true;
}

/// A new generation of a link knows no windows and no keys: attach what is known.
void PeerActor::attach_all() {
  for (const auto& link : links_) {
    if (!link->up() || !link->caps().attaches) continue;
    for (const auto& [id, region] : known_) {
      const bool mapped = link->caps().needs_window && memory_.remotes.mapping(region.key) != nullptr;
      if (!mapped) static_cast<void>(link->link()->attach(region));
    }
  }
}

void PeerActor::on_link_attached(LinkActor& link, RegionKey key, const Result<void>& result) {
  if (!result && result.error().code == ErrorCode::stale) {
    region_gone(key);
    return;
  }
  if (!result) {
    services_.loop.log().warn({"regions that cannot be used of rank", rank_},
                              "rank {} to {}: region {} cannot be used over {}: {}", services_.rank, rank_, key.id,
                              name(link.caps().kind), result.error().message());
    if (result.error().code == ErrorCode::not_registered) region_gone(key);  // retired while its window was asked for
  }
  if (attaching_ > 0) attaching_ -= 1;
  arrived_exchange_settled();
  pump_later();
}

/// A life of one of the peer's regions is over: operations that still wait for a link to reach it would wait in vain.
void PeerActor::region_gone(RegionKey key) {
  if (const auto known = known_.find(key.id); known != known_.end() && known->second.key == key) known_.erase(known);
  memory_.remotes.set_retired(key);
  gone_.push_back(key);
  pump_later();
}

void PeerActor::arrived_exchange_settled() {
  if (!arrived_whole_ || attaching_ > 0) return;
  arrived_whole_ = false;
  exchanges_in_ = arriving_.number;
  log::debug("rank {} to {}: exchange {} arrived, {} regions", services_.rank, rank_, exchanges_in_,
             arriving_.regions.size());
  std::vector<RemoteRegion> regions;
  regions.reserve(arriving_.regions.size());
  for (const wire::RegionDescriptor& region : arriving_.regions) {
    regions.push_back(remote_region(region, rank_, incarnation_));
  }
  ArrivedExchange arrived{.stream = arriving_.stream, .regions = std::move(regions), .refused = arriving_.refused};
  arriving_ = {};
  // Before what answers it.
  send_message(wire::FrameType::exchange_ack, wire::ExchangeAck{.number = exchanges_in_});
  take_exchange(std::move(arrived));
  match_exchanges();
}

void PeerActor::take_exchange(ArrivedExchange&& arrived) {
  const ExchangeStream& stream = arrived.stream;
  switch (stream.note) {
    case wire::ExchangeNote::told:
      return;  // its regions are known, and it answers nothing
    case wire::ExchangeNote::question: {
      const auto tag = static_cast<std::uint32_t>(stream.group);
      std::erase(asked_, tag);  // one answer is for all who have asked by then
      asked_.push_back(tag);
      if (asked_.size() > k_exchanges_open_max) {
        // As a rule, whoever asked first has given up, which nobody tells.
        if (publishing_.size() < k_exchanges_open_max) answer_question(asked_.front());
        asked_.erase(asked_.begin());
      }
      return serve_questions();
    }
    case wire::ExchangeNote::answer:
      // Who has given up is not here any more, and another answer may have come before this one.
      for (Waiter& waiter : waiters_) {
        if (waiter.wait.stream.answered_by() != stream || waiter.answer) continue;
        if (waiter.number <= exchanges_acknowledged_) {
          waiter.answer = arrived;
        } else {
          waiter.in_doubt = true;
        }
      }
      return;
    case wire::ExchangeNote::exchange:
      break;
  }
  arrived_.push_back(std::move(arrived));
}

/// Whoever asks for a tag hears of everything that is offered as soon as something of that tag is; for any tag, at
/// once.
void PeerActor::serve_questions() {
  if (asked_.empty() || !session_active_) return;
  const Offered& offered = services_.offered_now();
  std::erase_if(asked_, [&](std::uint32_t tag) {
    const bool there = tag == k_any_tag || std::any_of(offered.begin(), offered.end(),
                                                       [&](const auto& entry) { return entry.second.tag == tag; });
    if (!there || publishing_.size() >= k_exchanges_open_max) return false;
    answer_question(tag);
    return true;
  });
  publish();
  look_at_exchanges_by(services_.loop.now() + services_.timing.repeat);
}

void PeerActor::answer_question(std::uint32_t tag) {
  OutExchange out{.number = ++exchanges_out_, .regions = {}, .stream = {wire::ExchangeNote::answer, tag}};
  for (const auto& [id, region] : services_.offered_now()) {
    out.regions.push_back(region);
    published_.insert_or_assign(id, region);
  }
  publishing_.push_back(std::move(out));
}

// ---- both ----

/// A waiter is served when the peer has its part and one of the peer's exchanges is here that nobody took, of the same
/// group: those of two groups may be called in different orders on the two sides. A question is served with its answer,
/// and what is only told with the first of these alone.
void PeerActor::match_exchanges() {
  exchange_ready_ = true;
  pump_later();
}

void PeerActor::serve_exchanges() {
  exchange_ready_ = false;
  for (std::size_t i = 0; i < waiters_.size();) {
    Waiter& next = waiters_[i];
    if (next.refused.code != ErrorCode::ok || next.number > exchanges_acknowledged_) return;
    std::optional<ArrivedExchange> taken = take_answer(next);
    if (!taken && !next.in_doubt) {
      ++i;
      continue;
    }
    const Waiter waiter = std::move(next);
    waiters_.erase(waiters_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!taken) {
      ask_again({waiter});
      publish();
      continue;
    }
    log::debug("rank {} to {}: exchange {} is complete", services_.rank, rank_, waiter.number);
    PeerAddresses answer{.rank = rank_, .result = {}, .regions = std::move(taken->regions)};
    if (taken->refused.code != ErrorCode::ok) answer.result = fail(taken->refused);
    waiter.wait.done(waiter.wait.context, std::move(answer));
  }
}

std::optional<ArrivedExchange> PeerActor::take_answer(Waiter& waiter) {
  if (waiter.wait.stream.note == wire::ExchangeNote::told) return ArrivedExchange{};
  if (waiter.wait.stream.note == wire::ExchangeNote::question) return std::exchange(waiter.answer, std::nullopt);
  const auto found = std::find_if(arrived_.begin(), arrived_.end(), [&](const ArrivedExchange& arrived) {
    return arrived.stream == waiter.wait.stream.answered_by();
  });
  if (found == arrived_.end()) return std::nullopt;
  std::optional<ArrivedExchange> taken = std::move(*found);
  arrived_.erase(found);
  return taken;
}

/// The session has ended, and with it the count of exchanges. Gives those who wait.
std::deque<PeerActor::Waiter> PeerActor::forget_exchanges() {
  exchanges_in_ = exchanges_out_ = exchanges_acknowledged_ = 0;
  arriving_ = {};
  attaching_ = 0;
  arrived_whole_ = false;
  arrived_.clear();
  asked_.clear();
  publishing_.clear();
  return std::exchange(waiters_, {});
}

/// An exchange is with the rank, not with one life of it: when the next life is here already, it goes on with that. And
/// a question of which it is not known whether an answer was meant for it comes once more.
void PeerActor::ask_again(std::deque<Waiter> waiters) {
  for (Waiter& waiter : waiters) {
    if (waiter.refused.code == ErrorCode::ok) {
      waiter.number = ++exchanges_out_;
      waiter.answer.reset();
      waiter.in_doubt = false;
      publishing_.push_back({.number = waiter.number, .regions = waiter.regions, .stream = waiter.wait.stream});
    }
    waiters_.push_back(std::move(waiter));
  }
  look_at_exchanges_by(services_.loop.now() + services_.timing.repeat);
}

void PeerActor::fail_exchanges(std::deque<Waiter> waiters, const Error& error) {
  for (const Waiter& waiter : waiters) {
    waiter.wait.done(waiter.wait.context, PeerAddresses{.rank = rank_, .result = fail(error), .regions = {}});
  }
}

}  // namespace hixl::peer
