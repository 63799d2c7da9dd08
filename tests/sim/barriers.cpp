// SPDX-License-Identifier: Apache-2.0
//
// The cluster's barriers, among all ranks: entered at random, checked (S8) at every release that a collector sends.
#include <fmt/core.h>

#include <algorithm>

#include "cluster_parts.hpp"

namespace hixl::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// What a dead life had entered may be counted by a collector that has not noticed its death: a lease (3 s), and a stop
/// of the collector itself (8 s), and a connection that stands still (6 s).
constexpr seconds k_unnoticed_max{20};
/// Two, so that one that passes at once, because the others have gone on, is not taken for all.
constexpr std::uint64_t k_barriers_wanted = 2;
constexpr seconds k_barriers_max{180};
/// L2, as for operations; a barrier's end needs nobody.
constexpr milliseconds k_late_max{2000};

}  // namespace

void Cluster::turn_barriers() {
  for (Life* life : ranks_) {
    if (life == nullptr || life->barrier != nullptr || !posts(*life)) continue;
    if (faults_ && random_.chance(shape_.barrier_per_mille)) {
      enter_barrier(*life, milliseconds(random_.between(0, 5000)));
    }
  }
}

void Cluster::enter_barrier(Life& life, Duration timeout) {
  barriers_.push_back(std::make_unique<BarrierCall>());
  BarrierCall& call = *barriers_.back();
  call.cluster = this;
  call.life = &life;
  call.deadline = world_.now() + timeout;
  call.paused_before = life.paused;
  life.barrier = &call;
  const auto begun = life.core->barrier(
      {}, timeout,
      [](void* context, const Result<void>& result) {
        auto& ended = *static_cast<BarrierCall*>(context);
        ended.cluster->on_barrier_end(ended, result);
      },
      &call);
  if (!begun) violate("S14", fmt::format("a barrier was refused: {}", begun.error().message()));
}

void Cluster::on_barrier_end(BarrierCall& call, const Result<void>& result) {
  if (std::exchange(call.ended, true)) return violate("S2", "a barrier call ended twice");
  Life& life = *call.life;
  life.barrier = nullptr;
  if (life.closing || life.dead) return;
  const ErrorCode code = result ? ErrorCode::ok : result.error().code;
  say("rank {} ends a barrier: {}", life.rank, result ? "ok" : result.error().message());
  ends_hash_ = Random(ends_hash_ ^ (life.number << 8U) ^ static_cast<std::uint64_t>(code)).next();
  switch (code) {
    case ErrorCode::ok:
      count(Rare::barriers_passed);
      life.barriers_since_heal += faults_ ? 0 : 1;
      return;
    case ErrorCode::deadline_exceeded:
      count(Rare::barriers_missed);
      if (result.error().detail.missing_count == 0) violate("S14", "a barrier's deadline names nobody");
      return;
    case ErrorCode::peer_lost:
      count(Rare::barriers_with_dead);
      if (result.error().detail.rank >= shape_.size) violate("S14", "a barrier's PEER_LOST names nobody");
      return;
    case ErrorCode::stopped:
      if (!life.leaving) violate("S14", "a barrier ended with STOPPED while its runtime ran");
      return;
    default:
      return violate("S14", fmt::format("a barrier ended with {}", result.error().message()));
  }
}

/// The life is over: its successor has entered nothing.
void Cluster::forget_entered(Rank rank) {
  std::erase_if(taps_.released, [rank](const auto& item) { return item.first.first == rank; });
  for (auto place = taps_.entered.begin(); place != taps_.entered.end();) {
    const auto& [key, number] = *place;
    if (key.first != rank) {
      ++place;
      continue;
    }
    past_entered_.push_back({rank, key.second, number, world_.now() + k_unnoticed_max});
    place = taps_.entered.erase(place);
  }
}

/// The highest number that a rank has said and that may still be counted.
std::uint64_t Cluster::entered(Rank rank, std::uint64_t group) const {
  const auto said = taps_.entered.find({rank, group});
  std::uint64_t highest = said != taps_.entered.end() ? said->second : 0;
  for (const Past& past : past_entered_) {
    if (past.rank == rank && past.group == group) highest = std::max(highest, past.entered);
  }
  return highest;
}

/// S8: what is released, everybody has entered; and a life counts only while its death can be unknown.
void Cluster::check_releases() {
  if (taps_.releases.empty()) return;
  std::erase_if(past_entered_, [&](const Past& past) { return past.until < world_.now(); });
  for (const Release& release : std::exchange(taps_.releases, {})) {
    bool told_again = false;  // somebody is further: this was released before, perhaps by a collector that is dead
    std::uint64_t lowest = release.number;
    for (Rank rank = 0; rank < shape_.size; ++rank) {
      if (rank == release.collector) continue;
      told_again = told_again || entered(rank, release.group) > release.number;
      lowest = std::min(lowest, entered(rank, release.group));
    }
    std::uint64_t& before = taps_.released[{release.collector, release.group}];
    if (!told_again && release.number > before && lowest < release.number) {
      violate("S8", fmt::format("rank {} released barrier {}, which somebody has not entered: {}", release.collector,
                                release.number, lowest));
    }
    before = std::max(before, release.number);
  }
}

void Cluster::check_barrier_deadlines() {
  for (const Life* life : ranks_) {
    if (life == nullptr || life->barrier == nullptr) continue;
    const Instant limit = life->barrier->deadline + k_late_max + (life->paused - life->barrier->paused_before);
    if (world_.now() <= std::max(limit, life->awake_at + k_late_max)) continue;
    violate("L2", fmt::format("a barrier of rank {} is open long after its deadline", life->rank));
  }
}

bool Cluster::barriers_work() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Life* life) {
    return life != nullptr && life->barriers_since_heal >= k_barriers_wanted;
  });
}

/// L1: in a healthy world everybody passes.
void Cluster::require_barriers() {
  const Instant limit = world_.now() + k_barriers_max;
  while (!barriers_work() && !violation_ && world_.now() < limit) {
    for (Life* life : ranks_) {
      if (life != nullptr && life->barrier == nullptr && posts(*life)) enter_barrier(*life, seconds(5));
    }
    static_cast<void>(drive(milliseconds(10), Load::missing_pairs));
  }
  if (!barriers_work() && !violation_) violate("L1", "barriers do not work after healing");
}

}  // namespace hixl::sim
