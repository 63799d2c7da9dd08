// SPDX-License-Identifier: Apache-2.0
//
// Collecting. Whoever enters tells the collector, the lowest rank; when everybody has entered, the collector releases
// all: two messages a member. It records what it is told also while its own program is elsewhere, and is asked again
// every 200 ms by those who wait, so that any lost message is repaired and everybody can name who is missing. If it
// stays silent, members ask each other, for names only: nobody leaves but by its word.
//
// Numbers. Barriers of a group are numbered from 2; what a member says is the highest number it has entered. A call
// that fails takes no number: the next one enters the same again, and passes at once where the others have gone on.
// Number 1 is the roll call of a life that is new to the group and cannot know where the others are: it says 1 and is
// told the number that is being collected. A collector that is itself new waits until it has heard everybody; nobody
// passes it meanwhile, so the highest number heard is the one to enter; 2 when everybody is new.
//
// Deaths. When a member's life ends, all calls that the collector knows of end with PEER_LOST and count for nothing any
// more; a member's calls are counted, so that a verdict can be told again and never hits a later call.
#include "group/barrier_group.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "base/planted.hpp"
#include "group/ask_pause.hpp"
#include "group/rank_set.hpp"

namespace hixl::group {

namespace {

using wire::BarrierNote;

/// Polls of one round, so that a large group whose collector is silent causes no storm; the next round goes on.
constexpr std::size_t k_polls_a_round = 64;
constexpr std::uint64_t k_roll_call = 1;
constexpr std::size_t k_note_bytes_max = 64 + wire::k_rank_words_max * sizeof(std::uint64_t);

}  // namespace

void BarrierGroup::know(std::vector<Rank> ranks, const std::vector<Incarnation>& lives) {
  std::vector<Member> members;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == place_.self) own_place_ = i;
    if (ranks[i] == place_.self) continue;
    const Member* const heard = find(ranks[i]);
    members.push_back(heard != nullptr ? *heard : Member{.rank = ranks[i]});
    members.back().place = i;
    if (made()) members.back().life = lives[i];
  }
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.rank < b.rank; });
  others_ = std::move(members);
  known_ = true;
  if (made()) passed_ = entered_ = released_ = k_roll_call;  // everybody is new: there is nothing to ask
}

BarrierGroup::Member* BarrierGroup::find(Rank rank) noexcept {
  const auto place = std::lower_bound(others_.begin(), others_.end(), rank,
                                      [](const Member& member, Rank wanted) { return member.rank < wanted; });
  return place != others_.end() && place->rank == rank ? &*place : nullptr;
}

const BarrierGroup::Member* BarrierGroup::first_over() const noexcept {
  for (const Member& member : others_) {
    if (member.over != ErrorCode::ok) return &member;
  }
  return nullptr;
}

// ---- our calls ----

void BarrierGroup::enter(const BarrierCall& call) {
  Open& open = calls_.emplace_back(*this, call);
  place_.loop.start(open, call.deadline);
  if (calls_.size() == 1) begin();
}

/// The first of the calls enters.
void BarrierGroup::begin() {
  ++call_;
  if (const Member* const member = first_over(); member != nullptr) {
    return end_first(fail(member->over, {.rank = member->rank, .stage = Stage::barrier}));
  }
  if (paged()) return begin_paged();
  entered_ = calling_roll() ? k_roll_call : passed_ + 1;
  answered_ = true;
  const Duration left = calls_.front().call.deadline - place_.loop.now();
  place_.loop.start_after(*this, ask_pause(left));
  if (collects()) return proceed();
  // What was heard is of calls before; only what the collector says in this one counts.
  for (Member& member : others_) member.heard = 0;
  tell(others_[0], calling_roll() ? BarrierNote::ask : BarrierNote::arrived, entered_);
}

void BarrierGroup::pass() {
  passed_ = entered_;
  if (page_ && page_agreed_) page_->start(passed_);
  end_first({});
}

void BarrierGroup::end_first(const Result<void>& result) {
  cancel();
  give_turn();
  place_.host.end(calls_.front().call, result);
  calls_.pop_front();
  if (!calls_.empty()) begin();
}

void BarrierGroup::end_all(const Error& error) {
  cancel();
  give_turn();
  break_page(error);
  if (page_) page_->mark(own_place_, ErrorCode::peer_gone);
  for (const Open& open : calls_) place_.host.end(open.call, fail(error));
  calls_.clear();
}

void BarrierGroup::on_deadline(Open& open) {
  ErrorDetail detail{.stage = Stage::barrier};
  const bool turn_missing = paged() && !has_turn_;  // an earlier call of this rank is still in the barrier
  if (turn_missing) add_missing(detail, place_.self);
  for (const Member& member : others_) {
    if (!turn_missing && missing(member)) add_missing(detail, member.rank);
  }
  // All have entered, and it is the collector's word that did not come.
  if (detail.missing_count == 0 && !others_.empty()) add_missing(detail, others_[0].rank);
  if (&open == &calls_.front()) return end_first(fail(ErrorCode::deadline_exceeded, detail));
  place_.host.end(open.call, fail(ErrorCode::deadline_exceeded, detail));
  calls_.remove_if([&](const Open& call) { return &call == &open; });
}

/// Asks: the collector, which may have been told nothing or whose answer may be lost; those missing, if it is silent or
/// is this rank itself. Asking also connects, and so lets a death be noticed.
void BarrierGroup::on_timer() {
  if (closing_) return linger();
  if (paged()) return on_timer_paged();
  const Duration left = calls_.front().call.deadline - place_.loop.now();
  place_.loop.start_after(*this, ask_pause(left));
  if (collects()) return poll_missing();
  tell(others_[0], BarrierNote::ask, entered_);
  if (!std::exchange(answered_, false)) poll_missing();
}

void BarrierGroup::poll_missing() {
  std::size_t polls = 0;
  for (std::size_t looked = 0; looked < others_.size() && polls < k_polls_a_round; ++looked) {
    const Member& member = others_[poll_from_++ % others_.size()];
    if (!missing(member)) continue;
    tell(member, BarrierNote::poll, entered_);
    ++polls;
  }
}

// ---- collecting ----

/// The collector: releases what everybody has entered, and leaves it.
void BarrierGroup::proceed() {
  if (released_ == 0) number_members();
  collect();
  if (!calls_.empty() && !calling_roll() && entered_ <= released_) pass();
}

/// The roll call of a collector that is new is over when all have been heard.
void BarrierGroup::number_members() {
  if (calls_.empty()) return;
  std::uint64_t number = k_roll_call + 1;
  for (const Member& member : others_) {
    if (member.heard == 0) return;
    number = std::max(number, member.heard);
  }
  passed_ = released_ = number - 1;
  entered_ = number;
  for (Member& member : others_) {
    if (member.heard == k_roll_call) {
      tell_next(member, k_roll_call);
    } else if (member.heard < number) {
      tell(member, BarrierNote::released, released_);
    }
  }
}

void BarrierGroup::collect() {
  if (!known_ || released_ == 0 || entered_ <= released_) return;
  const std::uint64_t number = released_ + 1;
  const auto entered = [number](const Member& member) { return member.heard >= number; };
  if (!HIXL_PLANTED(barrier_releases_early) && !std::all_of(others_.begin(), others_.end(), entered)) return;
  released_ = number;
  // Decided once, before anybody can have entered a later one.
  if (page_ && number == k_roll_call + 1) page_agreed_ = page_->shared();
  for (const Member& member : others_) tell(member, BarrierNote::released, number);
}

void BarrierGroup::on_arrived(Member& member, const wire::Barrier& note) {
  if (note.call <= member.failed_call) return tell_verdict(member);
  // A thread that waits by the page asks; nobody is lost.
  if (page_agreed_ && note.number > released_ && first_over() == nullptr && !closing_) return;
  member.call = std::max(member.call, note.call);
  member.heard = std::max(member.heard, note.number);
  const Member* const over = first_over();
  if (closing_ || over != nullptr) {
    if (note.number <= released_) return tell(member, BarrierNote::released, released_);
    member.verdict = over != nullptr ? Error(over->over, {.rank = over->rank, .stage = Stage::barrier})
                                     : Error(ErrorCode::peer_gone, {.rank = place_.self, .stage = Stage::barrier});
    member.failed_call = page_agreed_ ? k_all_calls : member.call;
    member.heard = std::min(member.heard, released_);
    return tell_verdict(member);
  }
  const bool wants_number = note.number == k_roll_call;
  if (!wants_number && released_ != 0 && note.number <= released_) {
    return tell(member, BarrierNote::released, released_);
  }
  const bool numbered = released_ != 0;
  proceed();
  if (note.note != BarrierNote::ask) return;
  // Whoever was in the roll call that has just ended has been told.
  if (wants_number ? numbered || released_ == 0 : note.number > released_) tell_next(member, note.number);
}

void BarrierGroup::tell_next(const Member& member, std::uint64_t asked) {
  wire::Barrier note;
  note.note = BarrierNote::next;
  note.number = released_ != 0 ? released_ + 1 : asked;
  const std::uint64_t wanted = released_ != 0 ? note.number : k_roll_call;
  for (const Member& other : others_) {
    if (other.heard >= wanted) add_rank(note.ranks, other.rank);
  }
  if (!calls_.empty() || (released_ != 0 && entered_ >= wanted)) add_rank(note.ranks, place_.self);
  send(member, std::move(note));
}

// ---- notes ----

void BarrierGroup::on_note(peer::PeerLife from, const wire::Barrier& note) {
  if (!known_ && find(from.rank) == nullptr) {
    if (note.note != BarrierNote::arrived && note.note != BarrierNote::ask) return;
    const auto place = std::lower_bound(others_.begin(), others_.end(), from.rank,
                                        [](const Member& member, Rank rank) { return member.rank < rank; });
    others_.insert(place, Member{.rank = from.rank});
  }
  Member* const member = find(from.rank);
  if (member == nullptr) return;
  if (made() && member->life != from.incarnation) return tell(*member, BarrierNote::gone, 0);
  if (!made() && std::exchange(member->life, from.incarnation) != from.incarnation) {
    member->heard = member->call = member->failed_call = 0;
  }
  switch (note.note) {
    case BarrierNote::arrived:
    case BarrierNote::ask:
      if (collects()) on_arrived(*member, note);
      return;
    case BarrierNote::poll:
      // A collector may have missed it; what is no call of ours any more still counts as entered.
      if (known_ && entered_ != 0) tell(*member, BarrierNote::entered, entered_);
      return;
    case BarrierNote::entered:
      if (collects()) return on_arrived(*member, note);
      member->heard = std::max(member->heard, note.number);
      return;
    case BarrierNote::lost:
      if (!collects()) break;
      if (Member* const dead = find(note.rank); dead != nullptr && dead->ended != note.incarnation &&
                                                (dead->life == note.incarnation || (!made() && dead->life == 0))) {
        dead->ended = note.incarnation;
        lose(*dead, ErrorCode::peer_lost);
      }
      return;
    case BarrierNote::gone:
      if (!made()) return;
      if (collects()) return lose(*member, ErrorCode::peer_gone);
      if (member != &others_[0]) return;
      mark_over(*member, ErrorCode::peer_gone);
      if (!calls_.empty()) end_first(fail(ErrorCode::peer_gone, {.rank = from.rank, .stage = Stage::barrier}));
      return;
    case BarrierNote::released:
      if (paged()) return check_page();  // from whoever was the last to enter
      break;
    case BarrierNote::next:
      break;
  }
  if (!collects() && member == &others_[0]) on_answer(*member, note);
}

/// The collector's word.
void BarrierGroup::on_answer(Member& collector, const wire::Barrier& note) {
  answered_ = true;
  if (note.note == BarrierNote::lost && note.call == k_all_calls) {
    break_page(Error(static_cast<ErrorCode>(note.code), {.rank = note.rank, .stage = Stage::barrier}));
  }
  if (calls_.empty()) return;
  switch (note.note) {
    case BarrierNote::next:
      for (Member& member : others_) {
        if (has_rank(note.ranks, member.rank)) member.heard = std::max(member.heard, note.number);
      }
      if (!calling_roll() || note.number <= k_roll_call) return;
      entered_ = note.number;
      passed_ = note.number - 1;
      return tell(collector, BarrierNote::arrived, entered_);
    case BarrierNote::released:
      page_agreed_ = page_agreed_ || note.page != 0;
      if (!calling_roll() && entered_ <= note.number) pass();
      return;
    case BarrierNote::lost:
      if (call_ > note.call) return;
      entered_ = passed_;
      return end_first(fail(static_cast<ErrorCode>(note.code), {.rank = note.rank, .stage = Stage::barrier}));
    default:
      return;
  }
}

void BarrierGroup::tell(const Member& member, BarrierNote what, std::uint64_t number) {
  wire::Barrier note;
  note.note = what;
  note.number = number;
  note.call = call_;
  note.page = what == BarrierNote::released && page_agreed_ ? 1 : 0;
  send(member, std::move(note));
}

void BarrierGroup::send(const Member& member, wire::Barrier note) {
  note.group = name_;
  std::array<std::byte, k_note_bytes_max> buffer;
  ByteWriter writer(buffer);
  encode(note, writer);
  HIXL_ASSERT(writer.ok());
  // A full queue is as good as a lost note: it is asked for.
  static_cast<void>(place_.control.send_control(member.rank, wire::FrameType::barrier, writer.written()));
}

}  // namespace hixl::group
