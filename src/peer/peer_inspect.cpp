// SPDX-License-Identifier: Apache-2.0
//
// What is told of a peer: its links, why each is used or not, and where an operation stands.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "peer/peer_actor.hpp"

namespace hixl::peer {

namespace {

std::string state_name(const LinkActor& link, bool closed) {
  switch (link.state()) {
    case LinkActor::State::setup:
      return "CONNECTING";
    case LinkActor::State::up:
      if (link.suspect()) return "SUSPECT";
      if (link.on_probation()) return "PROBATION";
      return link.health().degraded() ? "DEGRADED" : "UP";
    case LinkActor::State::idle:
    case LinkActor::State::down:
      break;
  }
  if (link.unresolved()) return "FENCING";
  if (link.dial) return "CONNECTING";
  if (closed) return "CLOSED";
  return link.state() == LinkActor::State::idle ? "IDLE" : "BACKOFF";
}

/// "windows, other memory"
std::string duties(const LinkInfo& info) {
  struct Duty {
    bool there;
    const char* text;
  };
  std::string all;
  for (const Duty& duty : std::array<Duty, 4>{{{info.windows, "windows"},
                                               {info.other_memory, "other memory"},
                                               {info.device_memory, "device memory"},
                                               {info.words, "signals"}}}) {
    if (!duty.there) continue;
    if (!all.empty()) all += ", ";
    all += duty.text;
  }
  return all;
}

}  // namespace

Reach PeerActor::reach() const noexcept {
  return {.windows = serving(true, MemoryKind::host, Need::bytes),
          .other_memory = serving(false, MemoryKind::host, Need::bytes),
          .device_memory = serving(false, MemoryKind::hbm, Need::bytes),
          .words = serving(true, MemoryKind::host, Need::word)};
}

std::string PeerActor::why(const LinkActor& link, const LinkInfo& info) const {
  if (link.up()) {
    const std::string what = duties(info);
    if (what.empty()) return "spare: better kinds stand";
    if (services_.kind_forced) return fmt::format("the one kind that the options allow; takes {}", what);
    return fmt::format("{}; takes {}", info.chosen ? "the best kind that works" : "stands beside a better kind", what);
  }
  if (link.last_error.code == ErrorCode::transport_unavailable) {
    return fmt::format("refused by the system: {}", link.last_error.message());
  }
  if (link.last_error.code == ErrorCode::connect_refused && link.caps().same_host_only) {
    return "no process of this host answers at the peer's local name: the peer is on another host, or has ended";
  }
  if (link.last_error.code != ErrorCode::ok) return link.last_error.message();
  if (link.state() == LinkActor::State::setup) return "connecting";
  if (!address_known_) return needed() ? "the rendezvous has no address of the peer yet" : "not needed yet";
  if (!reachable_by(link)) {
    return link.caps().same_host_only ? "the peer offers no link that stays on its host"
                                      : "the peer offers no link over the network";
  }
  return "not needed yet";
}

void PeerActor::describe(std::vector<LinkInfo>& out) const {
  const Reach reach = this->reach();
  const auto stands = std::find_if(links_.begin(), links_.end(), [](const auto& link) { return link->up(); });
  const LinkActor* first = stands == links_.end() ? nullptr : stands->get();
  for (const auto& link : links_) {
    const auto traffic = link->traffic();
    LinkInfo info;
    info.rank = rank_;
    info.kind = link->caps().kind;
    info.id = link->id();
    info.incarnation = incarnation_;
    info.session = session_;
    info.generation = link->last_open();
    info.up = link->up();
    const bool works = link->up() && !link->suspect() && !link->on_probation();
    const auto shares = [&](const LinkActor* one) {
      return one == link.get() || (one != nullptr && works &&
                                   (services_.pooling == Pooling::all_kinds || one->caps().kind == link->caps().kind));
    };
    info.chosen = shares(first);
    info.windows = shares(reach.windows);
    info.other_memory = shares(reach.other_memory);
    info.device_memory = shares(reach.device_memory);
    info.words = shares(reach.words);
    info.state = state_name(*link, stopping_ || (had_session_ && incarnation_ == 0));
    info.reason = why(*link, info);
    info.bytes_out = traffic.bytes_out;
    info.bytes_in = traffic.bytes_in;
    info.in_flight = static_cast<std::uint32_t>(link->in_flight());
    info.bytes_in_flight = link->bytes_in_flight();
    info.busy = link->busy();
    info.rate = link->health().rate();
    info.round_trip = link->health().round_trip();
    info.share = link->up() ? link->health().share(services_.loop.now()) : 0;
    info.given_back = link->given_back();
    info.stalls = link->stalls();
    info.failures = link->failures_ever();
    info.last_error = link->failed_last();
    out.push_back(std::move(info));
  }
  for (const LinkKindOff& off : services_.kinds_off) {
    LinkInfo info;
    info.rank = rank_;
    info.kind = off.kind;
    info.incarnation = incarnation_;
    info.session = session_;
    info.state = "OFF";
    info.reason = off.reason;
    info.last_error = off.error;
    out.push_back(std::move(info));
  }
}

OperationState PeerActor::state_of(const Operation& operation) noexcept {
  if (operation.ending) return OperationState::fencing;
  if (operation.waiting || operation.is_order()) return OperationState::waiting;
  return operation.live > 0 ? OperationState::posted : OperationState::ready;
}

}  // namespace hixl::peer
