// SPDX-License-Identifier: Apache-2.0
//
// PeerActor's connections: who dials whom, and what a hello means.
#include <algorithm>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "base/planted.hpp"
#include "peer/peer_actor.hpp"

namespace hixl::peer {

namespace {

std::string hex(const PeerId& id) { return fmt::format("{:016x}{:016x}", id.high, id.low); }

}  // namespace

PeerActor::PeerActor(PeerServices& services, Rank rank, memory::PeerMemory& memory)
    : services_(services),
      rank_(rank),
      memory_(memory),
      atomic_window_(services.atomic_window),
      atomic_numbers_(services.atomic_window),
      lease_(services.timing.lease),
      arrivals_(memory.order, services.loop.mailbox()) {
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
    if (link->next_dial <= now) {
      dial(*link);
      continue;
    }
    earliest = std::min(earliest, link->next_dial);
  }
  if (earliest != k_never) services_.loop.start(dial_tick_, earliest);
}

void PeerActor::dial(LinkActor& link) {
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
  link.dial = std::make_unique<Dial>(services_.loop, *address, hello, services_.timing.connect,
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
  if (reject.reason != wire::RejectReason::duplicate_dial) link->last_error = connect_error_;
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
        // Nothing is wrong, and no other kind is called for, until that dial had its time.
        at_least = services_.timing.passive_delay;
        for (const auto& other : links_) other->next_dial = services_.loop.now() + at_least;
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

// ---- being dialled ----

/// Whether to accept a hello, and why not. Fills what a reject tells.
wire::RejectReason PeerActor::judge(const wire::Hello& hello, wire::Reject& reject, bool& accept) {
  accept = false;
  reject.session = session_active_ ? session_ : 0;
  // When both dial, the lower peer id's dial stays; one that is not even connected, or goes to another life, gives way.
  const auto stays = [&](const LinkActor* dialler) {
    return dialler != nullptr && dialler->dial && dialler->dial->greeted() && services_.peer_id < hello.peer_id &&
           dialler->dial->hello().target_incarnation == hello.incarnation;
  };
  if (stopping_) return wire::RejectReason::shutting_down;
  const Age age = age_of(hello.birth, hello.incarnation);
  if (age == Age::over && !HIXL_PLANTED(dead_life_returns)) return wire::RejectReason::dead;
  if (age == Age::impostor) return wire::RejectReason::wrong_incarnation;
  const LinkActor* link = find(hello.link_id);
  if (link == nullptr || link->caps().kind != hello.kind) return wire::RejectReason::kind_off;
  reject.link_gen = link->generation();
  if (hello.incarnation != incarnation_) {
    // A new life, whose first hello may cross ours to it. One that joins has accepted a hello of ours, and only its
    // welcome is still on the way: the session is the one that it names.
    if (hello.join != 0 && hello.session == 0) return wire::RejectReason::dead;
    if (hello.join != 0 ? stays(link) : incarnation_ == 0 && stays(dialling())) {
      return wire::RejectReason::duplicate_dial;
    }
    accept = true;
    return {};
  }
  if (hello.join != 0) {
    reject.session = session_;
    if (!session_active_ || hello.session > session_) return wire::RejectReason::dead;
    if (hello.session < session_) return wire::RejectReason::old_session;
    if (stays(link)) return wire::RejectReason::duplicate_dial;
    // Said before it opened a generation that we know it opened: it has given up this dial since.
    if (hello.opened_gen < link->opened_there()) return wire::RejectReason::old_generation;
    if (hello.link_gen <= link->last_open()) return wire::RejectReason::old_generation;
  } else if (session_active_ && hello.session < session_) {
    return wire::RejectReason::duplicate_dial;  // sent before it knew of our session
  } else if (!session_active_ && stays(dialling())) {
    return wire::RejectReason::duplicate_dial;
  }
  accept = true;
  return {};
}

void PeerActor::on_hello(Greeting& greeting, const wire::Hello& hello) {
  wire::Reject reject{.peer_id = services_.peer_id, .incarnation = services_.incarnation};
  bool accepted = false;
  reject.reason = judge(hello, reject, accepted);
  if (!accepted) {
    log::debug("rank {} to {}: refused its hello for link {} generation {}, reason {}", services_.rank, rank_,
               hello.link_id, hello.link_gen, static_cast<int>(reject.reason));
    greeting.reject(reject);
    if (stopping_ && hello.incarnation == incarnation_) farewell_until_ = {};  // it knows
    return;
  }
  accept(greeting, hello);
}

void PeerActor::accept(Greeting& greeting, const wire::Hello& hello) {
  if (incarnation_ != 0 && hello.incarnation != incarnation_) {
    end_session(Error(ErrorCode::peer_lost, {.rank = rank_, .stage = Stage::handshake}), Over::replaced);
  } else if (hello.join == 0 && session_active_) {
    end_session(Error(ErrorCode::fenced, {.rank = rank_, .stage = Stage::handshake}), Over::session);
  }
  note_life(hello.birth, hello.incarnation);
  LinkActor& link = *find(hello.link_id);
  const bool gives_way = hello.join == 0 && !session_active_;
  gives_way ? end_dials() : end_dial(link);
  link.fail(Error(ErrorCode::link_failed, {.rank = rank_, .link = link.id(), .stage = Stage::handshake}));
  const LinkGen generation = std::max(hello.link_gen, link.last_open() + 1);
  if (generation != hello.link_gen) {
    // Only a new session gets here (a joiner was judged): our count of this link is ahead of the dialler's.
    wire::Reject reject{.reason = wire::RejectReason::old_generation,
                        .peer_id = services_.peer_id,
                        .incarnation = services_.incarnation,
                        .session = 0,
                        .link_gen = link.generation()};
    greeting.reject(reject);
    return;
  }
  const SessionId session = std::max(session_, hello.session) + (hello.join != 0 ? 0 : 1);
  begin_session(hello.incarnation, session, hello.lease_ms, hello.rx_depth);
  // The hello may have been on its way while we dialled, were let in, and lost that link again. What was sent then it
  // does not know of; a fence asks when the link is up.
  link.resolve(hello.executed_gen, hello.executed, hello.opened_gen);
  link.note_opened_there(hello.opened_gen);
  link.raise_generation(generation);

  wire::Welcome welcome;
  welcome.peer_id = services_.peer_id;
  welcome.incarnation = services_.incarnation;
  welcome.birth = services_.birth;
  welcome.rank = services_.rank;
  welcome.session = session_;
  welcome.link_gen = generation;
  welcome.lease_ms = static_cast<std::uint32_t>(services_.timing.lease / std::chrono::milliseconds(1));
  welcome.tx_depth = services_.tx_depth;
  welcome.rx_depth = services_.rx_depth;
  welcome.executed_gen = link.executed().generation;
  welcome.executed = link.executed().set;
  open_link(link, generation, greeting.welcome(welcome), false);
  consider_dialling();
}

}  // namespace hixl::peer
