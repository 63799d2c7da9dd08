// SPDX-License-Identifier: Apache-2.0
//
// What ends barriers before all have entered: deaths, members that close the group, and our own closing of it.
#include <algorithm>
#include <utility>

#include "group/barrier_group.hpp"
#include "group/rank_set.hpp"

namespace hixl::group {

namespace {

using namespace std::chrono_literals;
using wire::BarrierNote;

/// A closed collector asks now and then whether its members have closed too: their word may have been lost.
constexpr Duration k_linger_pause = 1s;

}  // namespace

bool BarrierGroup::made() const noexcept { return (name_ & k_made_bit) != 0; }

// ---- deaths ----

void BarrierGroup::lose(Member& member, ErrorCode code) {
  // Also when only the session is over: across hosts a death is not seen in any other way.
  mark_over(member, code);
  const Rank rank = member.rank;
  member.heard = member.call = member.failed_call = 0;
  if (!made()) member.life = 0;
  judge(Error(code, {.rank = rank, .stage = Stage::barrier}));
}

/// All calls that are in the barrier end with `error`, and what they have entered counts no more.
void BarrierGroup::judge(const Error& error) {
  if (made()) {
    // For good, and also for those who wait by the page, of whom nothing is known here.
    for (Member& member : others_) {
      if (member.over != ErrorCode::ok) continue;
      if (!page_agreed_) continue;
      member.heard = std::max(member.heard, released_ + 1);
      member.call = k_all_calls;
    }
  }
  for (Member& member : others_) {
    if (member.heard <= released_) continue;
    member.heard = released_;
    member.failed_call = member.call;
    member.verdict = error;
    tell_verdict(member);
  }
  if (calls_.empty()) return;
  entered_ = passed_;
  end_first(fail(error));
}

void BarrierGroup::tell_verdict(const Member& member) {
  wire::Barrier note;
  note.note = BarrierNote::lost;
  note.call = member.failed_call;
  note.rank = member.verdict.detail.rank;
  note.code = static_cast<std::uint16_t>(member.verdict.code);
  send(member, std::move(note));
}

void BarrierGroup::on_peer_down(peer::PeerLife who, peer::PeerEnd end) {
  Member* const member = find(who.rank);
  if (member == nullptr || (made() && member->life != who.incarnation)) return;
  if (end == peer::PeerEnd::life && std::exchange(member->ended, who.incarnation) == who.incarnation) return;
  if (collects()) return lose(*member, ErrorCode::peer_lost);
  if (member == &others_[0]) {
    mark_over(*member, ErrorCode::peer_lost);
    entered_ = passed_;
    if (!calls_.empty()) end_first(fail(ErrorCode::peer_lost, {.rank = who.rank, .stage = Stage::barrier}));
    return;
  }
  member->heard = 0;
  if (end != peer::PeerEnd::life || (!made() && calls_.empty())) return;
  // The collector may have no connection to it.
  wire::Barrier note;
  note.note = BarrierNote::lost;
  note.rank = who.rank;
  note.incarnation = who.incarnation;
  note.code = static_cast<std::uint16_t>(ErrorCode::peer_lost);
  send(others_[0], std::move(note));
}

// ---- the end ----

void BarrierGroup::close() {
  closing_ = true;
  end_all(Error(ErrorCode::cancelled, {.rank = place_.self, .stage = Stage::barrier}));
  if (others_.empty()) return;
  if (!collects()) return tell(others_[0], BarrierNote::gone, 0);
  judge(Error(ErrorCode::peer_gone, {.rank = place_.self, .stage = Stage::barrier}));
  place_.loop.start_after(*this, k_linger_pause);
}

/// A collector may still owe its members the release of the last barrier.
bool BarrierGroup::closed() const noexcept {
  return closing_ && (!collects() || std::all_of(others_.begin(), others_.end(),
                                                 [](const Member& member) { return member.over != ErrorCode::ok; }));
}

void BarrierGroup::linger() {
  for (const Member& member : others_) {
    if (member.over == ErrorCode::ok) tell_next(member, 1);
  }
  place_.loop.start_after(*this, k_linger_pause);
}

}  // namespace hixl::group
