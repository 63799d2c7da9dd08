// SPDX-License-Identifier: Apache-2.0
//
// PeerActor's connections: who dials whom, and what a hello means.
#include <algorithm>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "peer/peer_actor.hpp"

namespace hixl::peer {

namespace {

std::string hex(const PeerId& id) { return fmt::format("{:016x}{:016x}", id.high, id.low); }

}  // namespace

PeerActor::PeerActor(PeerServices& services, Rank rank, memory::PeerMemory& memory, DialSlots& dial_slots)
    : services_(services),
      rank_(rank),
      memory_(memory),
      atomic_window_(services.atomic_window),
      atomic_numbers_(services.atomic_window),
      lease_(services.timing.lease),
      arrivals_(memory.order, services.loop.mailbox()),
      dial_slots_(dial_slots) {
  for (const LinkChoice& choice : services.links) {
    links_.push_back(std::make_unique<LinkActor>(services.loop, choice, services.timing, services.tx_depth,
                                                 static_cast<LinkActorEvents&>(*this)));
  }
}

PeerActor::~PeerActor() = default;

LinkActor* PeerActor::find(LinkId id) noexcept {
  for (const auto& link : links_) {
    if (link->id() == id) return link.get();
  }
  return nullptr;
}

LinkActor* PeerActor::best_up() noexcept {
  for (const auto& link : links_) {
    if (link->up()) return link.get();
  }
  return nullptr;
}

// ---- dialling ----

bool PeerActor::needed() const noexcept {
  // What was published is still owed to a rank that lives: a lost session is taken up again without the program's help.
  const bool owed = incarnation_ != 0 && !published_.empty();
  return session_active_ || prewarm_ || owed || !open_.empty() || !control_.empty() || !waiters_.empty() ||
         !publishing_.empty();
}

void PeerActor::want() {
  if (best_up() == nullptr || address_known_) consider_dialling();
}

bool PeerActor::reachable_by(const LinkActor& link) const noexcept {
  return link.caps().same_host_only ? !endpoints_.unix_name.empty() : !endpoints_.addresses.empty();
}

/// The i-th link goes to the i-th address, over again when there are fewer. Addresses that would be no link's are tried
/// in turn by those whose own one fails.
std::string PeerActor::address_for(const LinkActor& link) const {
  if (link.caps().same_host_only) return endpoints_.unix_name;
  const std::size_t all = endpoints_.addresses.size();
  const std::size_t links = link.choice().siblings;
  const std::size_t mine = link.choice().index % all;
  const std::size_t others = links < all ? (all - mine + links - 1) / links : 1;
  return endpoints_.addresses[mine + link.dials % others * links];
}

LinkActor* PeerActor::dialling() noexcept {
  for (const auto& link : links_) {
    if (link->dial) return link.get();
  }
  return nullptr;
}

void PeerActor::consider_dialling() {
  if (stopping_ || services_.birth == 0 || !needed()) return;
  if (!address_known_) {
    if (!watching_) {
      watching_ = true;
      services_.book.watch(rank_, *this);
    }
    return;
  }
  // The address is of another life than the session: the book is behind, or the session's life is over. Both pass.
  if (session_active_ && endpoints_.incarnation != incarnation_) return;
  const Instant now = services_.loop.now();
  Instant earliest = k_never;
  for (const auto& link : links_) {
    // The first link makes the session; the others join it, each by itself, so that one whose path swallows everything
    // holds up none of them.
    if (!session_active_ && dialling() != nullptr) return;
    const bool down = link->state() == LinkActor::State::idle || link->state() == LinkActor::State::down;
    if (!down || link->dial || link->draining() || !reachable_by(*link)) continue;
    if (!link->choice().factory->ready(link->choice().index)) {  // its card or port is down here
      earliest = std::min<Instant>(earliest, now + services_.timing.fence);
      continue;
    }
    if (link->next_dial <= now) {
      const bool lease_runs = session_active_ && best_up() == nullptr;
      auto slot = dial_slots_.take(dial_turn_, lease_runs ? DialSlots::Haste::lease_runs : DialSlots::Haste::none);
      if (!slot) continue;
      const Duration hasty = std::min<Duration>(services_.timing.connect, lease_ / k_hasty_dials_a_lease);
      dial(*link, std::move(slot), lease_runs ? hasty : services_.timing.connect);
      continue;
    }
    earliest = std::min(earliest, link->next_dial);
  }
  if (earliest != k_never) services_.loop.start(dial_tick_, earliest);
}

void PeerActor::dial(LinkActor& link, DialSlots::Slot slot, Duration timeout) {
  wire::Hello hello;
  hello.peer_id = services_.peer_id;
  hello.incarnation = services_.incarnation;
  hello.birth = services_.birth;
  hello.rank = services_.rank;
  hello.world_size = services_.world_size;
  hello.target_peer_id = endpoints_.peer_id;
  hello.target_incarnation = endpoints_.incarnation;
  hello.session = session_;
  hello.join = session_active_ || joinable_ ? 1 : 0;
  hello.link_id = link.id();
  hello.kind = link.caps().kind;
  hello.link_gen = link.generation() + 1;
  hello.lease_ms = static_cast<std::uint32_t>(services_.timing.lease / std::chrono::milliseconds(1));
  hello.tx_depth = services_.tx_depth;
  hello.rx_depth = services_.rx_depth;
  hello.executed_gen = link.executed().generation;
  hello.executed = link.executed().set;
  hello.opened_gen = link.last_open();
  link.raise_generation(hello.link_gen);
  link.dials += 1;

  Result<runtime::Address> address = link.caps().same_host_only
                                         ? Result<runtime::Address>(runtime::Address::abstract(address_for(link)))
                                         : runtime::Address::parse(address_for(link));
  if (!address) {
    link.last_error = connect_error_ = address.error();
    link.note_failure(connect_error_);
    back_off(link, services_.timing.backoff_cap);
    return;
  }
  log::debug("rank {} to {}: dialling {} at {}", services_.rank, rank_, description(hello.kind), address->text());
  link.dial = std::make_unique<Dial>(services_.loop, *address, hello, timeout, std::move(slot),
                                     static_cast<DialEvents&>(*this));
}

/// Puts a finished dial aside; it is inside its own event and goes with the next pump.
void PeerActor::end_dial(LinkActor& link) {
  if (!link.dial) return;
  over_dials_.push_back(std::move(link.dial));
  pump_later();
}

void PeerActor::end_dials() {
  for (const auto& link : links_) end_dial(*link);
}

void PeerActor::back_off(LinkActor& link, Duration at_least) {
  const Duration wait =
      link.health().backoff(services_.loop.now(), services_.timing, services_.loop.random(), best_up() != nullptr);
  link.next_dial = services_.loop.now() + std::max(at_least, wait);
  pump_later();
  services_.loop.start_after(dial_tick_, Duration{});
}

void PeerActor::on_dial_failed(Dial& dial, const Error& error) {
  LinkActor* link = find(dial.hello().link_id);
  if (link->dial.get() != &dial) return;
  connect_error_ = error;
  connect_error_.detail.rank = rank_;
  connect_error_.detail.link = link->id();
  link->last_error = connect_error_;
  link->note_failure(connect_error_);
  log::debug("rank {} to {}: {}", services_.rank, rank_, connect_error_.message());
  end_dial(*link);
  back_off(*link, services_.timing.backoff);
  end_unreachable();
}

void PeerActor::on_reject(Dial& dial, const wire::Reject& reject) {
  LinkActor* link = find(dial.hello().link_id);
  if (link->dial.get() != &dial) return;
  connect_error_ = Error(ErrorCode::handshake_failed, {.rank = rank_,
                                                       .link = link->id(),
                                                       .stage = Stage::handshake,
                                                       .limit = static_cast<std::uint64_t>(reject.reason)});
  dial.address().name_in(connect_error_.detail);
  // Two of the reasons say nothing against the link: it is dialled by the peer, or again with another number.
  const bool dialled_anyway =
      reject.reason == wire::RejectReason::duplicate_dial || reject.reason == wire::RejectReason::old_generation;
  if (!dialled_anyway) link->last_error = connect_error_;
  log::debug("rank {} to {}: refuses our hello for link {}, reason {}", services_.rank, rank_, link->id(),
             static_cast<int>(reject.reason));
  end_dial(*link);
  Duration at_least = services_.timing.backoff;
  switch (reject.reason) {
    case wire::RejectReason::duplicate_dial:
      // The peer's own dial is on its way; or it has a session that we do not know of yet and may join.
      if (!session_active_ && reject.session > session_) {
        session_ = reject.session;
        joinable_ = true;
      } else {
        // Nothing is wrong until that dial had its time; and without a session no other kind is called for.
        at_least = services_.timing.passive_delay;
        if (!session_active_) {
          for (const auto& other : links_) other->next_dial = services_.loop.now() + at_least;
        }
      }
      break;
    case wire::RejectReason::old_generation:
      link->raise_generation(reject.link_gen);
      at_least = Duration{};
      break;
    case wire::RejectReason::dead:
      if (dial.hello().join == 0) {
        at_least = services_.timing.backoff_cap;
        forsaken();
        break;
      }
      [[fallthrough]];  // it was asked for the session only
    case wire::RejectReason::old_session:
      // Perhaps said before it had joined: it speaks in this session. If it has left since, its links end as well, and
      // the next answer counts. Believing this one would end operations that it goes on executing.
      if (session_active_ && (dial.hello().session != session_ || best_up() != nullptr)) break;
      joinable_ = false;
      session_ = std::max(session_, reject.session);
      if (session_active_) {
        end_session(Error(ErrorCode::fenced, {.rank = rank_, .stage = Stage::handshake}), Over::session);
      }
      break;
    case wire::RejectReason::shutting_down:
      // As good as a goodbye: it has closed its regions. A life that leaves is not dialled again.
      connect_error_.code = ErrorCode::peer_gone;
      if (reject.incarnation != dial.hello().target_incarnation) break;
      bury(reject.incarnation);
      if (endpoints_.incarnation == reject.incarnation) address_known_ = false;
      if (incarnation_ == reject.incarnation) {
        end_session(Error(ErrorCode::peer_gone, {.rank = rank_, .stage = Stage::handshake}), Over::life);
      }
      break;
    case wire::RejectReason::wrong_peer:
    case wire::RejectReason::wrong_incarnation:
      connect_error_.code = ErrorCode::wrong_peer;
      connect_error_.detail.length = reject.incarnation;
      connect_error_.detail.limit = endpoints_.incarnation;
      link->last_error = connect_error_;
      log::debug("rank {} to {}: expected peer {} life {:x}, found {} life {:x}", services_.rank, rank_,
                 hex(endpoints_.peer_id), endpoints_.incarnation, hex(reject.peer_id), reject.incarnation);
      at_least = services_.timing.passive_delay;
      break;
    case wire::RejectReason::not_joined:
      break;
    case wire::RejectReason::kind_off:
      at_least = services_.timing.backoff_cap;
      break;
    default:
      at_least = services_.timing.passive_delay;
      break;
  }
  if (reject.reason != wire::RejectReason::duplicate_dial) link->note_failure(connect_error_);
  back_off(*link, at_least);
  end_unreachable();
}

void PeerActor::on_welcome(Dial& dial, const wire::Welcome& welcome) {
  const wire::Hello& hello = dial.hello();
  LinkActor* link = find(hello.link_id);
  if (link->dial.get() != &dial) return;  // given up meanwhile: the peer sees the connection end
  if (welcome.peer_id != hello.target_peer_id || welcome.incarnation != hello.target_incarnation ||
      age_of(welcome.birth, welcome.incarnation) != Age::present || welcome.rank != rank_ ||
      welcome.link_gen != hello.link_gen || welcome.session == 0 || (session_active_ && welcome.session != session_) ||
      welcome.session < session_) {
    static_cast<void>(dial.take_stream());
    Error wrong(ErrorCode::wrong_peer,
                {.stage = Stage::handshake, .length = welcome.incarnation, .limit = hello.target_incarnation});
    dial.address().name_in(wrong.detail);
    on_dial_failed(dial, wrong);
    return;
  }
  auto stream = dial.take_stream();
  const LinkGen generation = hello.link_gen;
  end_dial(*link);
  begin_session(welcome.incarnation, welcome.session, welcome.lease_ms, welcome.rx_depth);
  // It opens this generation, and so never again an earlier one.
  link->resolve(welcome.executed_gen, welcome.executed, generation - 1);
  link->note_opened_there(generation);
  open_link(*link, generation, std::move(stream), true);
  consider_dialling();  // the other kinds, as spares
}

void PeerActor::open_link(LinkActor& link, LinkGen generation, std::unique_ptr<links::FrameStream> stream,
                          bool dialled) {
  const links::LinkIdentity identity{
      .rank = rank_, .session = session_, .link_id = link.id(), .link_gen = generation, .dialled = dialled};
  const links::LinkServices services{.loop = services_.loop,
                                     .regions = services_.regions,
                                     .remotes = memory_.remotes,
                                     .signals = services_.signals,
                                     .tx_depth = services_.tx_depth,
                                     .rx_depth = peer_rx_depth_,
                                     .atomics = &atomic_window_,
                                     .check_payload = services_.check_payload};
  link.open(identity, std::move(stream), services);
}

}  // namespace hixl::peer
