// SPDX-License-Identifier: Apache-2.0
//
// Numbers. Barriers of a group are numbered from 2; what a member says is the highest number it has entered, and it
// leaves number n when everybody has said n or more. A call that fails takes no number: the next one enters the same
// again, and passes at once where the others have gone on.
//
// Number 1 is the roll call of a life that is new to the group and cannot know where the others are: it says 1 and
// asks. Whoever is in a barrier that it cannot leave without this life answers with its number. Nobody passes this life
// by meanwhile, so when all have been heard the highest number is the one to enter; 2 when everybody is new.
#include "group/barrier.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <map>
#include <utility>

#include "base/bytes.hpp"

namespace hixl::group {

namespace {

using namespace std::chrono_literals;

/// Pause between two repeats: above the round trip of any network meant here, so that nothing is repeated in a healthy
/// one, and short enough that a lost note is not felt as a hang.
constexpr Duration k_repeat_pause = 200ms;
/// Groups with a number of their own. A program has a handful; at 1 024 members each this is 32 MiB.
constexpr std::size_t k_groups_max = 1024;
constexpr std::uint64_t k_roll_call = 1;
/// Bytes of an encoded note: two numbers and a byte, with room.
constexpr std::size_t k_note_bytes_max = 32;

/// Name of a group, the same at every member: FNV-1a over the sorted ranks.
std::uint64_t group_name(const std::vector<Rank>& sorted) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const Rank rank : sorted) {
    for (unsigned shift = 0; shift < 32; shift += 8) hash = (hash ^ ((rank >> shift) & 0xffU)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace

struct BarrierActor::Impl final : runtime::Task {
  struct Group;

  /// One call.
  struct Open final : runtime::Timer {
    Open(Group& of, Entry what) : group(of), entry(std::move(what)) {}
    void on_timer() override { group.on_deadline(*this); }
    Group& group;
    Entry entry;
  };

  struct Member {
    Rank rank = 0;
    std::uint64_t heard = 0;   ///< highest number from its present life
    std::uint64_t former = 0;  ///< the same of a life that ended during our present call: it counts for this call only
    bool answered = false;     ///< since our roll call
  };

  struct Group final : runtime::Timer {
    Group(Impl& of, std::uint64_t group_id) : impl(of), id(group_id) {}
    void on_timer() override { repeat(); }

    void begin();
    void hear(Member& member, const wire::Barrier& note);
    void lose(Member& member);
    void on_deadline(Open& open);
    void proceed();
    void end_first(const Result<void>& result);
    void repeat();
    void tell(const Member& member, bool ask);
    [[nodiscard]] Member* find(Rank rank);
    [[nodiscard]] bool calling_roll() const { return passed == 0; }
    [[nodiscard]] bool missing(const Member& member) const {
      return calling_roll() ? !member.answered : std::max(member.heard, member.former) < entered;
    }

    Impl& impl;
    std::uint64_t id;
    std::vector<Member> others;  // by rank
    std::uint64_t entered = 0;   // highest number that we have said
    std::uint64_t passed = 0;    // highest number that we have left; 0: this life is new to the group
    std::list<Open> calls;       // the first is in the barrier, the others wait for it
  };

  struct Ended {
    Entry entry;
    Result<void> result;
  };

  Impl(runtime::Loop& on, peer::ControlPlane& plane, Rank own) : loop(on), control(plane), self(own) {}
  void run() override;
  void end(Entry entry, const Result<void>& result) {
    ended.push_back({std::move(entry), result});
    loop.defer(*this);
  }
  Result<std::uint64_t> check(std::vector<Rank>& ranks) const;

  runtime::Loop& loop;
  peer::ControlPlane& control;
  Rank self;
  bool stopped = false;
  std::map<std::uint64_t, Group> groups;
  std::deque<Ended> ended;
};

// ---- one group ----

/// The first of `calls` enters.
void BarrierActor::Impl::Group::begin() {
  entered = calling_roll() ? k_roll_call : passed + 1;
  for (Member& member : others) {
    member.former = 0;
    member.answered = false;
  }
  for (const Member& member : others) tell(member, calling_roll());
  impl.loop.start_after(*this, k_repeat_pause);
  proceed();
}

void BarrierActor::Impl::Group::hear(Member& member, const wire::Barrier& note) {
  member.heard = std::max(member.heard, note.number);
  member.answered = true;
  // A new life is told a number only by those who need it there; everybody else is told what we have entered, as often
  // as asked.
  const bool needed = !calls.empty() && member.former < entered;
  const bool answer = note.number == k_roll_call ? needed : entered != 0;
  if (note.repeat != 0 && answer) tell(member, false);
  proceed();
}

void BarrierActor::Impl::Group::lose(Member& member) {
  const bool waited_for = !calls.empty() && missing(member);
  member.former = std::max(member.former, member.heard);
  member.heard = 0;
  member.answered = false;
  if (!calls.empty() && (waited_for || calling_roll())) {
    end_first(fail(ErrorCode::peer_lost, {.rank = member.rank, .stage = Stage::barrier}));
  }
}

void BarrierActor::Impl::Group::on_deadline(Open& open) {
  ErrorDetail detail{.stage = Stage::barrier};
  for (const Member& member : others) {
    if (!missing(member)) continue;
    if (detail.missing_count < detail.missing.size()) detail.missing[detail.missing_count] = member.rank;
    ++detail.missing_count;
  }
  if (&open == &calls.front()) return end_first(fail(ErrorCode::deadline_exceeded, detail));
  impl.end(std::move(open.entry), fail(ErrorCode::deadline_exceeded, detail));
  calls.remove_if([&](const Open& call) { return &call == &open; });
}

/// Takes a number when the roll call is over; leaves when everybody has entered.
void BarrierActor::Impl::Group::proceed() {
  if (calls.empty()) return;
  const auto is_missing = [this](const Member& member) { return missing(member); };
  if (std::any_of(others.begin(), others.end(), is_missing)) return;
  if (calling_roll()) {
    entered = k_roll_call + 1;
    for (const Member& member : others) entered = std::max(entered, member.heard);
    passed = entered - 1;
    for (const Member& member : others) tell(member, false);
    if (std::any_of(others.begin(), others.end(), is_missing)) return;
  }
  passed = entered;
  end_first({});
}

void BarrierActor::Impl::Group::end_first(const Result<void>& result) {
  cancel();
  impl.end(std::move(calls.front().entry), result);
  calls.pop_front();
  if (!calls.empty()) begin();
}

void BarrierActor::Impl::Group::repeat() {
  for (const Member& member : others) {
    if (missing(member)) tell(member, true);
  }
  impl.loop.start_after(*this, k_repeat_pause);
}

void BarrierActor::Impl::Group::tell(const Member& member, bool ask) {
  std::array<std::byte, k_note_bytes_max> buffer;
  ByteWriter writer(buffer);
  encode(wire::Barrier{id, entered, static_cast<std::uint8_t>(ask ? 1 : 0)}, writer);
  HIXL_ASSERT(writer.ok());
  // A full queue is as good as a lost note: it is repeated.
  static_cast<void>(impl.control.send_control(member.rank, wire::FrameType::barrier, writer.written()));
}

BarrierActor::Impl::Member* BarrierActor::Impl::Group::find(Rank rank) {
  const auto place = std::lower_bound(others.begin(), others.end(), rank,
                                      [](const Member& member, Rank wanted) { return member.rank < wanted; });
  return place != others.end() && place->rank == rank ? &*place : nullptr;
}

// ---- all groups ----

void BarrierActor::Impl::run() {
  while (!ended.empty()) {
    const Ended one = std::move(ended.front());
    ended.pop_front();
    one.entry.done(one.entry.context, one.result);
  }
}

/// Sorts the ranks; the group's name.
Result<std::uint64_t> BarrierActor::Impl::check(std::vector<Rank>& ranks) const {
  std::sort(ranks.begin(), ranks.end());
  const bool duplicate = std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end();
  if (duplicate || !std::binary_search(ranks.begin(), ranks.end(), self)) {
    return fail(ErrorCode::invalid_argument, {.rank = self, .stage = Stage::barrier});
  }
  const std::uint64_t name = group_name(ranks);
  if (groups.size() >= k_groups_max && !groups.contains(name)) {
    return fail(ErrorCode::limit_reached, {.stage = Stage::barrier, .limit = k_groups_max});
  }
  return name;
}

BarrierActor::BarrierActor(runtime::Loop& loop, peer::ControlPlane& control, Rank self)
    : impl_(std::make_unique<Impl>(loop, control, self)) {}

BarrierActor::~BarrierActor() = default;

void BarrierActor::enter(Entry entry) {
  Impl& impl = *impl_;
  if (impl.stopped) return impl.end(std::move(entry), fail(ErrorCode::stopped, {.stage = Stage::barrier}));
  const auto name = impl.check(entry.ranks);
  if (!name) return impl.end(std::move(entry), fail(name.error()));
  const auto [place, fresh] = impl.groups.try_emplace(*name, impl, *name);
  Impl::Group& group = place->second;
  if (fresh) {
    for (const Rank rank : entry.ranks) {
      if (rank != impl.self) group.others.push_back({.rank = rank});
    }
  }
  const Instant deadline = entry.deadline;
  Impl::Open& call = group.calls.emplace_back(group, std::move(entry));
  impl.loop.start(call, deadline);
  if (group.calls.size() == 1) group.begin();
}

void BarrierActor::on_barrier(Rank from, const wire::Barrier& message) {
  const auto place = impl_->groups.find(message.group);
  if (place == impl_->groups.end()) return;  // its sender will be asked when this rank enters
  Impl::Member* const member = place->second.find(from);
  if (member != nullptr) place->second.hear(*member, message);
}

void BarrierActor::on_peer_down(Rank rank) {
  for (auto& [name, group] : impl_->groups) {
    Impl::Member* const member = group.find(rank);
    if (member != nullptr) group.lose(*member);
  }
}

void BarrierActor::stop() {
  Impl& impl = *impl_;
  impl.stopped = true;
  for (auto& [name, group] : impl.groups) {
    group.cancel();
    for (Impl::Open& call : group.calls) {
      impl.ended.push_back({std::move(call.entry), fail(ErrorCode::stopped, {.stage = Stage::barrier})});
    }
    group.calls.clear();
  }
  // Here and now: whoever stops may take the loop away next.
  impl.run();
}

}  // namespace hixl::group
