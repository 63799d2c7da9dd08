// SPDX-License-Identifier: Apache-2.0
//
// PeerActor's session and the peer's life: when it begins, when it is over, and in which order what is let go.
#include <fcntl.h>

#include <algorithm>
#include <thread>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "base/planted.hpp"
#include "peer/peer_actor.hpp"

namespace hixl::peer {

void PeerActor::begin_session(Incarnation incarnation, SessionId session, std::uint32_t lease_ms,
                              std::uint32_t rx_depth) {
  joinable_ = false;
  if (session_active_) return;
  incarnation_ = incarnation;
  session_ = session;
  session_active_ = true;
  came_up_ = false;
  peer_rx_depth_ = std::clamp<std::uint32_t>(rx_depth, 1, 1024);
  // The peer says by which lease it wants to be judged: a scheduler on its own loop may be silent for long.
  lease_ = std::clamp<Duration>(std::chrono::milliseconds(lease_ms), std::chrono::milliseconds(500),
                                std::chrono::minutes(1));
  services_.loop.start_after(heartbeat_tick_, services_.timing.heartbeat);
  if (std::exchange(had_session_, true)) publish_again();
  log::debug("rank {} to {}: session {} with life {:x}", services_.rank, rank_, session_, incarnation_);
}

/// Ends the session: local fence, then every operation, then grants and mappings, then one word to the owner.
void PeerActor::end_session(const Error& why, Over over) {
  if (!session_active_ && incarnation_ == 0) return;
  const bool was_active = session_active_;
  // No link ever stood because the system forbids the only kinds allowed: that is the reason, not the silence after it.
  const bool forbidden = best_up() == nullptr && connect_error_.code == ErrorCode::transport_unavailable;
  const Error exchanges_end = forbidden ? connect_error_ : why;
  const PeerLife who{rank_, incarnation_};
  if (was_active && why.code == ErrorCode::peer_lost) services_.counters.peers_lost += 1;
  services_.loop.log().info({"sessions that ended with rank", rank_}, "rank {} to {}: session {} ends: {}",
                            services_.rank, rank_, session_, why.message());
  session_active_ = false;
  joinable_ = false;
  heartbeat_tick_.cancel();
  if (!HIXL_PLANTED(dial_joins_ended_session)) end_dials();  // they would join what has just ended
  memory_.gate.close();
  ends_held_ = true;
  for (const auto& link : links_) link->fail(why);
  end_all(why);
  // A peer that left with an attempt unanswered cannot be asked any more: that is PEER_LOST, not PEER_GONE (R1 c).
  Error unanswered = why;
  if (why.code == ErrorCode::peer_gone) unanswered.code = ErrorCode::peer_lost;
  for (const auto& link : links_) {
    link->give_up_unresolved(unanswered);
    link->forget_executed();
    link->forget_peer();
  }
  if (over != Over::session) give_up_atomics();
  memory_.remotes.clear();
  known_.clear();
  broken_links_.clear();
  fences_asked_.clear();
  // Exchanges that were asked for after an earlier end of the session are meant for the next one.
  std::deque<Waiter> waiters;
  if (was_active) {
    control_.clear();
    waiters = forget_exchanges();
  }
  if (over == Over::replaced) ask_again(std::move(waiters));
  if (over != Over::session) release_life();
  services_.loop.start_after(reap_tick_, Duration{});
  // Last, since the program may call us from there.
  tell_ends();
  if (over != Over::replaced) fail_exchanges(std::move(waiters), exchanges_end);
  services_.listener.on_peer_down(who, over == Over::session ? PeerEnd::session : PeerEnd::life, why);
}

void PeerActor::release_life() {
  bury(incarnation_);
  if (!HIXL_PLANTED(atomic_window_outlives_life)) atomic_window_.reset();
  atomic_numbers_.reset();
  for (const auto& link : links_) {
    link->forget_opened_there();
    link->last_error = {};  // says nothing of the next life
  }
  if (endpoints_.incarnation == incarnation_) address_known_ = false;
  incarnation_ = 0;
  session_ = 0;
  process_watch_.reset();
  process_ = runtime::Fd();
  if (process_known_) {
    process_known_ = false;
    services_.listener.on_same_host_count(--services_.same_host_peers);
  }
}

PeerActor::Age PeerActor::age_of(Birth birth, Incarnation incarnation) const noexcept {
  if (birth > newest_.birth) return Age::newer;
  if (birth < newest_.birth) return Age::over;
  if (incarnation != newest_.incarnation) return Age::impostor;  // no number is given to two lives
  return newest_.buried ? Age::over : Age::present;
}

/// One that is not over.
void PeerActor::note_life(Birth birth, Incarnation incarnation) noexcept {
  if (birth > newest_.birth) newest_ = {.birth = birth, .incarnation = incarnation};
}

void PeerActor::bury(Incarnation incarnation) noexcept {
  if (incarnation == newest_.incarnation) newest_.buried = true;
}

/// The peer holds this life of ours for over, and that is final: our rank was given to a newer one while we stood
/// still. It has forgotten us, and what we have under way or want of it has no other end than this.
void PeerActor::forsaken() {
  services_.loop.log().error({"peers that hold this life for over, rank", rank_},
                             "rank {}: rank {} holds this life ({:x}) for over: another one has the rank",
                             services_.rank, rank_, services_.incarnation);
  const Error why(ErrorCode::fenced, {.rank = rank_, .stage = Stage::handshake});
  if (session_active_) end_session(why, Over::session);
  joinable_ = false;
  end_all(why);
  for (const auto& link : links_) link->give_up_unresolved(why);
  give_up_atomics();
  control_.clear();
  std::deque<Waiter> waiters = forget_exchanges();
  tell_ends();
  fail_exchanges(std::move(waiters), why);
}

void PeerActor::watch_process(int pidfd) {
  if (pidfd < 0 || process_known_) return;
  // The link closes its descriptor when it is reaped, which may be before this loop sees the death, and a closed
  // descriptor is never ready. (A simulated one is a number without a duplicate.)
  runtime::Fd own(::fcntl(pidfd, F_DUPFD_CLOEXEC, 0));
  auto watch = services_.loop.port().watch(own ? own.get() : pidfd, *this);
  if (!watch) return;
  process_ = std::move(own);
  process_watch_ = std::move(*watch);
  process_known_ = true;
  services_.listener.on_same_host_count(++services_.same_host_peers);
}

void PeerActor::on_ready() {
  process_watch_.reset();
  end_session(Error(ErrorCode::peer_lost, {.rank = rank_, .stage = Stage::transfer}), Over::life);
  consider_dialling();
}

/// Judges life by lease where the kernel does not report it.
void PeerActor::heartbeat() {
  if (!session_active_ || process_known_) return;
  for (const auto& link : links_) {
    if (!HIXL_PLANTED(heartbeat_missing)) link->sign_of_life();
  }
  if (services_.loop.now() - heard() > lease_) {
    end_session(silence(), Over::session);
    consider_dialling();
    return;
  }
  services_.loop.start_after(heartbeat_tick_, services_.timing.heartbeat);
}

/// What a lease without a sign of life is. Nobody is lost who was never there: where a session was agreed on and then
/// no link came up, nothing was posted, and the reason is why none did.
Error PeerActor::silence() const {
  const auto lease_ms = static_cast<std::uint64_t>(lease_ / std::chrono::milliseconds(1));
  if (came_up_) return Error(ErrorCode::peer_lost, {.rank = rank_, .stage = Stage::transfer, .limit = lease_ms});
  const bool told = connect_error_.code != ErrorCode::ok && connect_error_.code != ErrorCode::link_failed;
  if (told) return connect_error_;
  return Error(ErrorCode::connect_timeout, {.rank = rank_, .stage = Stage::handshake, .limit = lease_ms});
}

Instant PeerActor::heard() const noexcept {
  Instant latest = last_contact_;
  for (const auto& link : links_) latest = std::max(latest, link->last_heard());
  return latest;
}

/// Local-stall immunity. Our own lateness is no sign of the peer's death: what it sent meanwhile has not been read yet,
/// so its time goes on from where it stood. And if we were late for so long that the peer may have given us up, we are
/// perhaps the ones who are over.
void PeerActor::on_late(Duration lag) {
  if (process_known_ || stopping_ || HIXL_PLANTED(own_lateness_blames_peer)) return;
  if (session_active_) last_contact_ = std::min(services_.loop.now(), heard() + lag);
  // The peer may have heard us last a heartbeat before the first timer that is late, and another heartbeat is for the
  // way; a shorter lateness ends no session (L5).
  if (lag > services_.timing.lease - 2 * services_.timing.heartbeat) doubt_session(lag);
}

/// Does the session still stand? That cannot be asked on the links that stand: what the peer sent before it gave us up
/// comes first on them, and must not be applied any more, for the peer has told its program that those operations are
/// over. So this side fences itself, unread, and asks in the next hello, which joins the session that it names. If it
/// stands, the handshake settles what was under way and nothing is lost; if not, the peer says so and ours ends FENCED.
void PeerActor::doubt_session(Duration lag) {
  end_dials();  // their welcomes may be of that time as well
  services_.loop.start_after(dial_tick_, Duration{});
  if (!session_active_) return;
  services_.loop.log().warn({"times that our own loop was late for a lease, rank", rank_},
                            "rank {} to {}: this loop was late by {} ms; asks whether session {} still stands",
                            services_.rank, rank_, lag / std::chrono::milliseconds(1), session_);
  for (const auto& link : links_) {
    link->fail(Error(ErrorCode::link_failed, {.rank = rank_, .link = link->id(), .stage = Stage::handshake}));
    link->next_dial = {};
  }
}

void PeerActor::on_link_up(LinkActor& link) {
  services_.loop.log().info({"links that came up to rank", rank_}, "rank {} to {}: {} is up (link {}, generation {})",
                            services_.rank, rank_, description(link.caps().kind), link.id(), link.generation());
  came_up_ = true;
  last_contact_ = services_.loop.now();
  connect_error_ = {};
  watch_process(link.link()->pidfd());
  if (!link.caps().needs_window && best_up() == &link && links_.front().get() != &link && !services_.warned_fallback &&
      links_.front()->last_error.code != ErrorCode::ok) {
    services_.warned_fallback = true;
    services_.counters.fallbacks += 1;
    log::warn("rank {} to {}: {} could not be used ({}), going on by {}", services_.rank, rank_,
              description(links_.front()->caps().kind), links_.front()->last_error.message(),
              description(link.caps().kind));
  }
  warn_of_refused_network();
  attach_all();
  update_gate();
  publish_unacknowledged();
  request_fences();
  pump_later();
}

void PeerActor::on_link_down(LinkActor& link, const Error& error) {
  services_.counters.link_failures += 1;
  connect_error_ = error;
  log::debug("rank {} to {}: link {} is down: {}", services_.rank, rank_, link.id(), error.message());
  const Instant now = services_.loop.now();
  last_contact_ = now;
  if (link.caps().attaches) {  // nobody will tell how its attachments went
    attaching_ = 0;
    arrived_exchange_settled();
  }
  update_gate();
  services_.loop.start_after(reap_tick_, Duration{});
  if (!session_active_) return;
  warn_of_refused_network();
  // What the system forbids it will forbid in a moment, too.
  const bool forbidden = error.code == ErrorCode::transport_unavailable;
  const Duration passive = link.dialled ? Duration{} : services_.timing.passive_delay;
  back_off(link, forbidden ? services_.timing.backoff_cap : passive);
  request_fences();
}

void PeerActor::update_gate() {
  for (const auto& link : links_) {
    if (!link->up()) continue;
    memory::Lane* lane = link->link()->lane();
    memory::SignalBell* bell = link->link()->bell();
    if (lane == nullptr || bell == nullptr) continue;
    if (gate_link_ == link->link()) return;
    if (!memory_.gate.idle()) {  // a caller is still inside from before
      services_.loop.start_after(reap_tick_, std::chrono::milliseconds(1));
      return;
    }
    gate_link_ = link->link();
    memory_.gate.open(*lane, *bell);
    return;
  }
  gate_link_ = nullptr;
  memory_.gate.close();
}

void PeerActor::on_reap_tick() {
  bool more = false;
  const bool idle = memory_.gate.idle();
  for (const auto& link : links_) more = link->reap(idle) || more;
  update_gate();
  // 1 ms: a copy in a lane is at most 64 KiB, an engine's piece 256 KiB.
  if (more || !idle) services_.loop.start_after(reap_tick_, std::chrono::milliseconds(1));
  if (!more) consider_dialling();
  pump_if_waiting();
}

void PeerActor::on_address(const wire::Endpoints& endpoints) {
  const Age age = age_of(endpoints.birth, endpoints.incarnation);
  if (age == Age::over || age == Age::impostor) {
    log::debug("rank {} to {}: told of life {:x} (birth {}), which is over", services_.rank, rank_,
               endpoints.incarnation, endpoints.birth);
    return;
  }
  note_life(endpoints.birth, endpoints.incarnation);
  if (endpoints.incarnation != endpoints_.incarnation) end_dials();
  endpoints_ = endpoints;
  address_known_ = true;
  if (incarnation_ != 0 && endpoints.incarnation != incarnation_) {
    // The store gives a rank away only when the connection of its earlier life has ended.
    end_session(Error(ErrorCode::peer_lost, {.rank = rank_, .stage = Stage::rendezvous}), Over::replaced);
    address_known_ = true;
    endpoints_ = endpoints;
  }
  for (const auto& link : links_) {
    link->next_dial = {};
    link->health().forget_failures();
    link->dials = 0;
  }
  consider_dialling();
}

void PeerActor::on_address_gone(Rank rank, Incarnation incarnation) {
  static_cast<void>(rank);
  // A hint only: links tell about life and death.
  if (endpoints_.incarnation == incarnation && !session_active_) address_known_ = false;
}

void PeerActor::stop(Instant farewell_until) {
  stopping_ = true;
  if (best_up() == nullptr) {
    if (session_active_) farewell_until_ = std::min<Instant>(farewell_until, services_.loop.now() + k_farewell);
  } else {
    send_message(wire::FrameType::bye, wire::Bye{.code = static_cast<std::uint16_t>(ErrorCode::ok)});
    flush_control();
  }
  dial_tick_.cancel();
  for (const auto& link : links_) link->dial.reset();
  const Error why(ErrorCode::stopped, {.rank = rank_, .stage = Stage::shutdown});
  end_all(why);
  tell_ends();
  fail_exchanges(std::exchange(waiters_, {}), why);
  fail_connects(why);
  pump_later();
}

bool PeerActor::stopped() {
  if (has_open_operations() || services_.loop.now() < farewell_until_) return false;
  if (memory_.gate.idle() && !closing_) {
    closing_ = true;
    memory_.gate.close();
    gate_link_ = nullptr;
    session_active_ = false;
    heartbeat_tick_.cancel();
    fence_tick_.cancel();
    for (const auto& link : links_) link->fail(Error(ErrorCode::stopped, {.rank = rank_, .stage = Stage::shutdown}));
  }
  bool draining = false;
  for (const auto& link : links_) draining = link->reap(memory_.gate.idle()) || draining;
  return !draining && closing_;
}

void PeerActor::abort() {
  stopping_ = true;
  for (const auto& link : links_) link->dial.reset();
  const Error why(ErrorCode::stopped, {.rank = rank_, .stage = Stage::shutdown});
  memory_.gate.close();
  session_active_ = false;
  for (const auto& link : links_) link->fail(why);
  // A copy engine's piece takes well under a millisecond; memory of the caller is not given back before.
  constexpr int k_looks_max = 20'000;
  bool draining = true;
  for (int looks = 0; draining && looks < k_looks_max; ++looks) {
    draining = false;
    for (const auto& link : links_) draining = link->reap(memory_.gate.idle()) || draining;
    if (draining) std::this_thread::yield();
  }
  while (Operation* operation = open_.front()) {
    for (const auto& link : links_) link->drop(*operation);
    take_back_returned(*operation);
    operation->error = why;
    finish(*operation);
  }
  tell_ends();
  fail_exchanges(std::exchange(waiters_, {}), why);
  fail_connects(why);
}

}  // namespace hixl::peer
