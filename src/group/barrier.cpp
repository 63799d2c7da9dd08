// SPDX-License-Identifier: Apache-2.0
#include "group/barrier.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "group/rank_set.hpp"

namespace hixl::group {

namespace {

/// Groups with a number of their own. A program has a handful; at 1 024 members each this is 64 MiB.
constexpr std::size_t k_groups_max = 1024;

/// The same at every member.
std::uint64_t name_of(const std::vector<Rank>& sorted) {
  std::uint64_t hash = hash_of(sorted.size());
  for (const Rank rank : sorted) hash = hash_of(rank, hash);
  return hash & ~k_made_bit;
}

}  // namespace

BarrierActor::BarrierActor(runtime::Loop& loop, peer::ControlPlane& control, Rank self)
    : place_{.loop = loop, .control = control, .host = *this, .self = self} {}

void BarrierActor::end(const BarrierCall& call, const Result<void>& result) {
  ended_.push_back({call, result});
  place_.loop.defer(*this);
}

void BarrierActor::run() {
  while (!ended_.empty()) {
    const Ended one = std::move(ended_.front());
    ended_.pop_front();
    one.call.done(one.call.context, one.result);
  }
}

/// Sorts the ranks; the group's name.
Result<std::uint64_t> BarrierActor::check(std::vector<Rank>& ranks) const {
  std::sort(ranks.begin(), ranks.end());
  const bool duplicate = std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end();
  if (duplicate || !std::binary_search(ranks.begin(), ranks.end(), place_.self)) {
    return fail(ErrorCode::invalid_argument, {.rank = place_.self, .stage = Stage::barrier});
  }
  const std::uint64_t name = name_of(ranks);
  if (groups_.size() >= k_groups_max && !groups_.contains(name)) {
    return fail(ErrorCode::limit_reached, {.stage = Stage::barrier, .limit = k_groups_max});
  }
  return name;
}

BarrierGroup& BarrierActor::group(std::uint64_t name) { return groups_.try_emplace(name, place_, name).first->second; }

void BarrierActor::enter(Entry entry) {
  const BarrierCall call{entry.deadline, entry.done, entry.context};
  if (stopped_) return end(call, fail(ErrorCode::stopped, {.stage = Stage::barrier}));
  const auto name = check(entry.ranks);
  if (!name) return end(call, fail(name.error()));
  BarrierGroup& entered = group(*name);
  if (!entered.known()) entered.know(std::move(entry.ranks), {});
  entered.enter(call);
}

void BarrierActor::open(std::uint64_t name, std::vector<Rank> ranks, const std::vector<Incarnation>& lives,
                        std::shared_ptr<memory::BarrierPage> page) {
  BarrierGroup& opened = group(name);
  opened.know(std::move(ranks), lives);
  opened.use(std::move(page));
}

void BarrierActor::tell_released(std::uint64_t name) {
  if (const auto place = groups_.find(name); place != groups_.end()) place->second.tell_released();
}

void BarrierActor::ask(std::uint64_t name) {
  if (const auto place = groups_.find(name); place != groups_.end()) place->second.ask();
}

void BarrierActor::enter(std::uint64_t name, const BarrierCall& call) {
  if (stopped_) return end(call, fail(ErrorCode::stopped, {.stage = Stage::barrier}));
  const auto place = groups_.find(name);
  if (place == groups_.end()) return end(call, fail(ErrorCode::invalid_argument, {.stage = Stage::group}));
  place->second.enter(call);
}

void BarrierActor::close(std::uint64_t name) {
  const auto place = groups_.find(name);
  if (place == groups_.end()) return;
  place->second.close();
  if (place->second.closed()) groups_.erase(place);
}

void BarrierActor::refuse(Rank rank, std::uint64_t name) {
  wire::Barrier note;
  note.note = wire::BarrierNote::gone;
  note.group = name;
  std::array<std::byte, 128> buffer;
  ByteWriter writer(buffer);
  encode(note, writer);
  HIXL_ASSERT(writer.ok());
  static_cast<void>(place_.control.send_control(rank, wire::FrameType::barrier, writer.written()));
}

void BarrierActor::on_barrier(peer::PeerLife from, const wire::Barrier& message) {
  if (stopped_) return;
  auto place = groups_.find(message.group);
  if (place == groups_.end()) {
    const bool arrives = message.note == wire::BarrierNote::arrived || message.note == wire::BarrierNote::ask;
    if ((message.group & k_made_bit) != 0) {
      // Not to a poll: its sender may know of the group before this rank does.
      if (arrives || message.note == wire::BarrierNote::next) refuse(from.rank, message.group);
      return;
    }
    if (!arrives || groups_.size() >= k_groups_max) return;  // the sender asks again
    place = groups_.try_emplace(message.group, place_, message.group).first;
  }
  place->second.on_note(from, message);
  if (place->second.closed()) groups_.erase(place);
}

void BarrierActor::on_peer_down(peer::PeerLife who, peer::PeerEnd end) {
  for (auto place = groups_.begin(); place != groups_.end();) {
    place->second.on_peer_down(who, end);
    place = place->second.closed() ? groups_.erase(place) : std::next(place);
  }
}

void BarrierActor::stop() {
  stopped_ = true;
  for (auto& [name, group] : groups_) group.end_all(Error(ErrorCode::stopped, {.stage = Stage::barrier}));
  // Here and now: whoever stops may take the loop away next.
  run();
}

}  // namespace hixl::group
