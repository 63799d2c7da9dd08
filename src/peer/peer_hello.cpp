// SPDX-License-Identifier: Apache-2.0
//
// PeerActor being dialled: which hellos are accepted, and what the others are told.
#include <algorithm>

#include "base/log.hpp"
#include "base/planted.hpp"
#include "peer/peer_actor.hpp"

namespace hixl::peer {

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
    // A session that we do not know: ours was accepted, and only the welcome that tells of it is still on the way.
    const bool asked = std::any_of(links_.begin(), links_.end(), [&](const auto& one) {
      return one->dial && one->dial->greeted() && one->dial->hello().target_incarnation == hello.incarnation;
    });
    if (hello.session > session_ && asked) return wire::RejectReason::duplicate_dial;
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
