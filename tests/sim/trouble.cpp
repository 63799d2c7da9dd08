// SPDX-License-Identifier: Apache-2.0
//
// What the cluster does to its ranks, and how it demands that they get over it.
#include <fmt/core.h>

#include <algorithm>

#include "cluster_parts.hpp"

namespace hixl::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Which = runtime::VirtualWorld::Which;

/// The longest stop of a process, the lease, and the backoff of a link that failed often, which is up to 30 s, twice.
constexpr seconds k_drain_max{90};
constexpr seconds k_pairs_max{180};
/// Of runs: the last look at an idle world, which costs as much time as all the rest.
constexpr std::uint32_t k_idle_per_mille = 100;
/// Beyond everything that may still be under way in a network that has healed: the late half of a break (3 s), a
/// clog (2 s; 6 s from the cluster), a piece that the card holds back (2 s), a process that hangs (8 s).
constexpr seconds k_calm{9};

}  // namespace

void Cluster::inject_faults() {
  const auto draw = [&](std::uint32_t per_mille) -> Life* {
    return trouble_.chance(per_mille) ? ranks_[trouble_.below(shape_.size)] : nullptr;
  };
  if (Life* life = draw(shape_.kill_per_mille)) kill(life->rank);
  if (Life* life = draw(shape_.replace_per_mille); life != nullptr && posts(*life)) replace(life->rank);
  if (Life* life = draw(shape_.leave_per_mille); life != nullptr && posts(*life)) leave(life->rank);
  if (Life* life = draw(shape_.turnover_per_mille); life != nullptr && posts(*life)) turn_over(*life);
  if (Life* life = draw(shape_.pause_per_mille)) {
    const Duration time = milliseconds(trouble_.between(1, trouble_.chance(shape_.long_per_mille) ? 6000 : 300));
    life->paused += time;
    life->awake_at = std::max(life->awake_at, world_.now() + time);
    if (time > life->lease) count(Rare::paused_beyond_lease);
    say("rank {} is stopped for {} us", life->rank, time.count() / 1000);
    world_.pause(*life->port, time);
  }
  Life* other = ranks_[trouble_.below(shape_.size)];
  if (Life* life = draw(shape_.clog_per_mille); life != nullptr && other != nullptr && life != other) {
    const Duration time = milliseconds(trouble_.between(1, trouble_.chance(shape_.long_per_mille) ? 6000 : 1000));
    const Which which = trouble_.chance(500) ? Which::one : Which::all;
    say("nothing passes from rank {} to rank {} on {} for {} us", life->rank, other->rank,
        which == Which::one ? "one connection" : "any connection", time.count() / 1000);
    world_.clog(*life->port, *other->port, time, which);
  }
  if (Life* life = draw(shape_.squeeze_per_mille); life != nullptr && other != nullptr && life != other) {
    const Duration time = milliseconds(trouble_.between(1, trouble_.chance(shape_.long_per_mille) ? 6000 : 1000));
    const Which which = trouble_.chance(500) ? Which::one : Which::all;
    const std::uint64_t bytes_per_ms = trouble_.between(4, 512);
    count(Rare::squeezed);
    say("{} bytes a ms pass from rank {} to rank {} on {} for {} us", bytes_per_ms, life->rank, other->rank,
        which == Which::one ? "one connection" : "any connection", time.count() / 1000);
    world_.squeeze(*life->port, *other->port, time, bytes_per_ms, which);
  }
  if (Life* life = draw(shape_.reset_per_mille); life != nullptr && other != nullptr && life != other) {
    const Which which = trouble_.chance(500) ? Which::one : Which::all;
    say("{} between ranks {} and {} breaks", which == Which::one ? "one connection" : "every connection", life->rank,
        other->rank);
    world_.reset(*life->port, *other->port, which);
  }
  if (rdma_ != nullptr) disturb_cards();
  if (trouble_.chance(shape_.restart_per_mille)) {
    const Rank rank = static_cast<Rank>(trouble_.below(shape_.size));
    if (ranks_[rank] == nullptr && world_.now() >= restart_at_[rank]) ranks_[rank] = &start(rank);
  }
}

/// Of a host, whether a process lives there or not.
void Cluster::disturb_cards() {
  const auto host = [&] { return static_cast<Rank>(trouble_.below(shape_.size)); };
  const auto rail = [&] { return static_cast<std::uint32_t>(trouble_.below(shape_.rails)); };
  if (trouble_.chance(shape_.flap_per_mille)) {
    const Duration time = milliseconds(trouble_.between(1, trouble_.chance(shape_.long_per_mille) ? 6000 : 300));
    const Rank at = host();
    const std::uint32_t which = rail();
    say("port of card {} of host {} is down for {} us", which, at, time.count() / 1000);
    rdma_->flap(at, which, time);
  }
  if (trouble_.chance(shape_.pull_per_mille)) {
    const Duration time = milliseconds(trouble_.between(1, 3000));
    const Rank at = host();
    const std::uint32_t which = rail();
    say("card {} of host {} is gone for {} us", which, at, time.count() / 1000);
    rdma_->pull(at, which, time);
  }
}

void Cluster::on_fault(std::string_view what, std::uint64_t connection) {
  count(Rare::net_faults);
  say("! connection {}: {}", connection, what);
}

/// The rank was killed: its operations will never end, and what they wrote may go on landing until the target notices.
void Cluster::orphan(Operation& operation) {
  operation.orphaned = true;
  count(Rare::orphaned);
  release(operation);
  for (const Part& part : operation.parts) {
    if (!part.get) operation.remote->quarantine(part.remote_slot, operation.life->number);
  }
}

/// At whatever stage it is; the checks of its end are the same as for any other.
void Cluster::cancel(Operation& operation) {
  if (!posts(*operation.life)) return;
  operation.cancelled = true;
  say("{}: is cancelled", operation.number);
  const auto asked = operation.request.cancel();
  if (!asked) violate("S14", fmt::format("a cancel was refused: {}", asked.error().message()));
}

/// Takes the region away from everybody and registers the same memory anew.
void Cluster::turn_over(Life& life) {
  const auto exchanging = [&](Rank rank) {
    return life.pairs[rank].exchanging || (ranks_[rank] != nullptr && ranks_[rank]->pairs[life.rank].exchanging);
  };
  for (Rank rank = 0; rank < shape_.size; ++rank) {
    if (exchanging(rank)) return;  // it would publish what is about to go
  }
  life.turning = true;
  say("rank {} deregisters region {} generation {}", life.rank, life.region.key.id, life.region.key.generation);
  const auto asked = life.core->deregister(
      life.region, seconds(600),
      [](void* context, const Result<void>& result) {
        const std::unique_ptr<Turnover> note(static_cast<Turnover*>(context));
        note->cluster->on_turned_over(*note, result);
      },
      new Turnover{this, &life});
  if (!asked) violate("S14", fmt::format("a deregistration was refused: {}", asked.error().message()));
}

void Cluster::on_turned_over(const Turnover& note, const Result<void>& result) {
  Life& life = *note.life;
  if (life.dead || life.closing || life.leaving) return;
  if (!result) return violate("S14", fmt::format("a region could not be deregistered: {}", result.error().message()));
  count(Rare::regions_turned_over);
  check_memory(life);
  for (const Operation* operation : open_) {
    for (const Part& part : operation->parts) {
      if (operation->life != &life || part.copied || part.size == 0) continue;  // touches no local memory
      return violate("S10", fmt::format("operation {} is open although its region was released", operation->number));
    }
  }
  // S10: what its peers have under way may end well, but may not write any more.
  // And what they have under way from here may fail, but not bring what comes next.
  for (std::size_t slot = 0; slot < k_slots; ++slot) {
    life.memory->freeze(slot);
    if (life.memory->use(slot) != Memory::Use::written) life.memory->refill(slot, 0, k_slot_bytes, contents_);
  }
  const auto region = life.core->register_memory(life.memory->data(), life.memory->size(), {});
  HIXL_ASSERT(region.has_value());
  life.region = *region;
  if (!life.keys.insert({region->key.id, region->key.generation}).second) {
    violate("S10",
            fmt::format("region {} generation {} exists for the second time", region->key.id, region->key.generation));
  }
  say("rank {} registered region {} generation {}", life.rank, life.region.key.id, life.region.key.generation);
  life.turning = false;
  for (Rank rank = 0; rank < shape_.size; ++rank) forget_addresses(life.rank, rank);
}

bool Cluster::every_pair_works() const {
  for (const Life* life : ranks_) {
    if (life == nullptr) return false;
    for (Rank to = 0; to < shape_.size; ++to) {
      if (to != life->rank && life->pairs[to].successes_since_heal == 0) return false;
    }
  }
  return true;
}

bool Cluster::is_zombie(const Life& life) const { return life.dead && !life.left && world_.alive(*life.port); }

std::uint64_t Cluster::peers_lost() {
  std::uint64_t sum = 0;
  for (Life* life : ranks_) sum += life != nullptr ? life->core->counters().peers_lost : 0;
  return sum;
}

/// L5: in a healthy world nobody is taken for dead, not even by a rank that was stopped itself for longer than the
/// others' leases, as long as it is for less than its own.
void Cluster::idle() {
  if (!trouble_.chance(k_idle_per_mille) || violation_) return;
  // A zombie and its successor go on taking the rank from each other.
  const bool zombies = std::any_of(lives_.begin(), lives_.end(), [this](const auto& life) { return is_zombie(*life); });
  if (zombies) return;
  Life* longest = ranks_.front();
  for (Life* life : ranks_) {
    if (life != nullptr && (longest == nullptr || life->lease > longest->lease)) longest = life;
  }
  if (longest == nullptr) return;
  const std::uint64_t before = peers_lost();
  world_.run_for(longest->lease + milliseconds(500));
  if (peers_lost() != before) return violate("L5", "a rank was taken for dead in a healthy, idle world");
  const Duration stop = longest->lease - 3 * longest->lease / 10;
  say("rank {} is stopped for {} us, less than its lease", longest->rank, stop.count() / 1000);
  longest->paused += stop;
  longest->awake_at = std::max(longest->awake_at, world_.now() + stop);
  world_.pause(*longest->port, stop);
  world_.run_for(stop + milliseconds(500));
  count(Rare::stopped_within_lease);
  if (peers_lost() != before)
    violate("L5", fmt::format("rank {} was stopped, and somebody was taken for dead", longest->rank));
}

/// Everything works again. Whatever is open must end, and every pair must be able to transfer.
void Cluster::heal() {
  faults_ = false;
  settled_at_ = world_.now() + k_calm;
  say("the world heals");
  world_.set_plan(runtime::FaultPlan{});
  if (fabric_) fabric_->set_plan(links::SimPlan{});
  if (rdma_ != nullptr) rdma_->heal();
  taps_.faults = {};
  taps_.lie_per_mille = 0;
  corruptor_.set_rate(0);
  if (!drive(k_drain_max, Load::none)) {
    for (const Operation* operation : open_) {
      violate("L1", fmt::format("operation {} of rank {} to rank {} did not end after healing", operation->number,
                                operation->life->rank, operation->to));
    }
    return;
  }
  const Instant limit = world_.now() + k_pairs_max;
  while (!every_pair_works() && !violation_ && world_.now() < limit) {
    static_cast<void>(drive(milliseconds(20), Load::missing_pairs));
  }
  for (const Life* life : ranks_) {
    for (Rank to = 0; life != nullptr && to < shape_.size; ++to) {
      const Knowledge& known = life->pairs[to];
      if (to == life->rank || known.successes_since_heal > 0) continue;
      violate("L1",
              fmt::format("rank {} could not transfer to rank {} after healing (addresses {}, {}, last {})", life->rank,
                          to, known.region ? "known" : "unknown", known.exchanging ? "exchanging" : "not exchanging",
                          known.last_error.code == ErrorCode::ok ? "none" : known.last_error.message()));
    }
  }
  if (!violation_) require_barriers();
  if (violation_) return;
  // By then every living target has met its peers again and has fenced itself: nothing old may land any more.
  world_.run_for(k_calm);
  say("what was quarantined is settled");
  for (const auto& life : lives_) {
    for (std::size_t slot = 0; slot < k_slots; ++slot) {
      if (life->memory->use(slot) == Memory::Use::quarantined) life->memory->settle(slot);
    }
  }
  idle();
  static_cast<void>(drive(milliseconds(100), Load::full));
  if (!drive(k_drain_max, Load::none)) violate("L1", "an operation of a healthy world did not end");
  check_baseline();
  for (const auto& life : lives_) check_memory(*life);
}

}  // namespace hixl::sim
