// SPDX-License-Identifier: Apache-2.0
//
// PeerActor's choice of links: which kind reaches which memory, and what is said when none does.
#include <algorithm>

#include "base/log.hpp"
#include "peer/peer_actor.hpp"

namespace hixl::peer {

namespace {

/// Whether a kind serves regions of this sort at all, for bytes or for words (signals, atomics).
bool serves(const links::LinkCaps& caps, const wire::RegionDescriptor& region, bool words) noexcept {
  return (region.window_id != 0 || !caps.needs_window) && (region.kind == MemoryKind::host || !caps.host_memory_only) &&
         (caps.words || !words);
}

}  // namespace

/// Whether any kind that this runtime may use reaches the regions of an operation.
Result<void> PeerActor::check_reach(const Operation& operation) {
  if (unreachable_by(operation.links)) return fail(unreachable());
  if (operation.kind == Operation::Kind::atomic) {
    return check_reach_of(operation.atomic.region, true, operation.links);
  }
  if (operation.signal.wanted) {
    const auto reached = check_reach_of(operation.signal.region, true, operation.links);
    if (!reached) return reached;
  }
  const Entry* before = nullptr;
  for (const Entry& entry : operation.entries()) {
    if (before != nullptr && before->region == entry.region) continue;
    before = &entry;
    if (const auto reached = check_reach_of(entry.region, false, operation.links); !reached) return reached;
  }
  return {};
}

Result<void> PeerActor::check_reach_of(RegionKey key, bool words, LinkSet kinds) {
  const auto known = known_.find(key.id);
  if (known == known_.end() || known->second.key != key) {
    // Posted in the moment in which the region, or the life that had published it, ended: nobody will ever serve it.
    const ErrorCode code = incarnation_ == 0 ? ErrorCode::peer_lost : ErrorCode::stale;
    return fail(code, {.rank = rank_, .stage = Stage::remote_check});
  }
  const wire::RegionDescriptor& region = known->second;
  const ErrorDetail detail{
      .rank = rank_, .stage = Stage::remote_check, .address = region.base, .length = region.length};
  if (words && region.kind != MemoryKind::host) return fail(ErrorCode::unsupported, detail);  // no CPU's word
  const bool served = std::any_of(links_.begin(), links_.end(), [&](const auto& link) {
    return kinds.allows(link->caps().kind) && serves(link->caps(), region, words);
  });
  if (!served) return fail(ErrorCode::transport_unavailable, detail);
  if (region.window_id == 0 && !words) warn_of_tcp(region, kinds);
  return {};
}

/// Whether it is known that none of these kinds reaches the peer: the peer lives, since another kind stands, and each
/// of these was refused by it or by this host.
bool PeerActor::unreachable_by(LinkSet kinds) const noexcept {
  if (kinds.empty() || !session_active_) return false;
  bool another_stands = false;
  for (const auto& link : links_) {
    if (!kinds.allows(link->caps().kind)) {
      another_stands = another_stands || link->up();
      continue;
    }
    const bool down = link->state() == LinkActor::State::idle || link->state() == LinkActor::State::down;
    const ErrorCode why = link->last_error.code;
    const bool refused = why == ErrorCode::transport_unavailable ||
                         (why == ErrorCode::connect_refused && link->caps().same_host_only) ||
                         (why == ErrorCode::handshake_failed &&
                          link->last_error.detail.limit == static_cast<std::uint64_t>(wire::RejectReason::kind_off));
    if (!down || (!refused && (!address_known_ || reachable_by(*link)))) return false;
  }
  return another_stands;
}

Error PeerActor::unreachable() const noexcept {
  return Error(ErrorCode::transport_unavailable,
               {.rank = rank_, .stage = Stage::connect, .os_error = connect_error_.detail.os_error});
}

/// A kind turned out not to reach the peer: who may take no other is told, rather than left to its deadline.
void PeerActor::end_unreachable() {
  ends_held_ = true;
  for (Operation* operation = open_.front(); operation != nullptr;) {
    Operation* next = open_.next(*operation);
    if (operation->kind == Operation::Kind::transfer && operation->live == 0 && unreachable_by(operation->links)) {
      end(*operation, unreachable());
    }
    operation = next;
  }
  ends_held_ = false;
  pump_later();
}

/// Once: memory outside windows is on this host, and no kind for this host reaches it.
void PeerActor::warn_of_tcp(const wire::RegionDescriptor& region, LinkSet kinds) {
  if (services_.warned_window || !process_known_) return;
  bool have_host_kind = false;
  Error refusal(ErrorCode::unsupported);
  for (const auto& link : links_) {
    if (!kinds.allows(link->caps().kind)) continue;  // not wanted
    have_host_kind = have_host_kind || link->caps().same_host_only;
    if (!link->caps().same_host_only || !serves(link->caps(), region, false)) continue;
    // One that stands, or was never said to be impossible here, will do.
    if (link->up() || link->last_error.code != ErrorCode::transport_unavailable) return;
    refusal = link->last_error;
  }
  if (!have_host_kind) return;
  services_.warned_window = true;
  services_.counters.fallbacks += 1;
  if (region.kind == MemoryKind::hbm) {
    log::warn(
        "rank {} to {}: memory at {:#x} is device memory (hbm, emulated), which no window shows, so transfers to it go "
        "by tcp although the rank is on this host",
        services_.rank, rank_, region.base);
    return;
  }
  log::warn(
      "rank {} to {}: memory at {:#x} was not allocated by the library{}, so transfers to it go by tcp although the "
      "rank is on this host; allocate() gives memory that every link reaches",
      services_.rank, rank_, region.base,
      refusal.code == ErrorCode::unsupported ? std::string()
                                             : " and cross-memory attach is refused (" + refusal.message() + ")");
}

/// Once: a faster kind for the network is there on both sides and does not reach from one to the other.
void PeerActor::warn_of_refused_network() {
  const LinkActor* const stands = best_up();
  if (services_.warned_fallback || stands == nullptr || stands->caps().same_host_only) return;
  for (const auto& link : links_) {
    if (link.get() == stands) return;
    const Error& why = link->last_error;
    const bool refused = link->state() == LinkActor::State::down && is_refusal(why.code);
    if (link->caps().same_host_only || !refused) continue;
    services_.warned_fallback = true;
    services_.counters.fallbacks += 1;
    log::warn("rank {} to {}: {} is here and does not reach that rank ({}), going on by {}", services_.rank, rank_,
              description(link->caps().kind), why.message(), description(stands->caps().kind));
    return;
  }
}

/// Whether a link, credit aside, takes such an attempt now.
bool PeerActor::takes(const LinkActor& link, bool mapped, MemoryKind kind, Need need) noexcept {
  const links::LinkCaps& caps = link.caps();
  if (!link.up() || (caps.needs_window && !mapped) || (caps.host_memory_only && kind != MemoryKind::host)) return false;
  return need == Need::bytes || (caps.words && (need == Need::word || !caps.executed_by_initiator));
}

bool PeerActor::reaches(LinkActor& link, RegionKey region) noexcept {
  return link.link() == nullptr || link.link()->reaches(region);
}

/// Whether a link other than this one may serve the operation's bytes there; perhaps one that does not stand now.
bool PeerActor::reached_elsewhere(const LinkActor& link, const Operation& operation, RegionKey key) noexcept {
  const auto known = known_.find(key.id);
  return known != known_.end() && std::any_of(links_.begin(), links_.end(), [&](const auto& other) {
           return other.get() != &link && operation.links.allows(other->caps().kind) &&
                  (!other->caps().same_host_only || other->up()) && serves(other->caps(), known->second, false) &&
                  reaches(*other, key);
         });
}

/// Links of the best kind that stands share the work, or of all kinds, as the options say: of those with credit the one
/// that would be done first. Whoever is suspected takes none; whoever is on probation only when nobody else stands.
LinkActor* PeerActor::choose(const Operation& operation, RegionKey region, Need need, std::uint64_t bytes) noexcept {
  const Bulk bulk = operation.small || need != Need::bytes ? Bulk::no : Bulk::yes;
  LinkActor* chosen = nullptr;
  LinkActor* on_trial = nullptr;
  const links::LinkCaps* best = nullptr;
  for (const auto& link : links_) {
    const links::LinkCaps& caps = link->caps();
    const bool lesser = best != nullptr && caps.rank_of_choice != best->rank_of_choice;
    if (lesser && services_.pooling == Pooling::best_kind) break;  // links_ has the best first
    if (!operation.links.allows(caps.kind)) continue;
    const bool mapped = caps.needs_window && memory_.remotes.mapping(region) != nullptr;
    MemoryKind kind = MemoryKind::host;
    if (caps.host_memory_only) {
      const auto known = known_.find(region.id);
      if (known == known_.end()) continue;
      kind = known->second.kind;
    }
    if (!takes(*link, mapped, kind, need) || link->suspect()) continue;
    // Where there is no other, the post is refused with the reason.
    if (need == Need::bytes && !reaches(*link, region) && reached_elsewhere(*link, operation, region)) continue;
    const std::uint64_t size = std::min<std::uint64_t>(bytes, caps.chunk_bytes);
    if (link->on_probation()) {
      if (on_trial == nullptr && link->has_credit(size, bulk)) on_trial = link.get();
      continue;
    }
    if (best == nullptr) best = &caps;
    if (link->has_credit(size, bulk) && (chosen == nullptr || link->backlog() < chosen->backlog())) chosen = link.get();
  }
  return best != nullptr ? chosen : on_trial;
}

const LinkActor* PeerActor::serving(bool mapped, MemoryKind kind, Need need) const noexcept {
  for (const auto& link : links_) {
    if (takes(*link, mapped, kind, need)) return link.get();
  }
  return nullptr;
}

}  // namespace hixl::peer
