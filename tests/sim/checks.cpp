// SPDX-License-Identifier: Apache-2.0
//
// What the cluster looks at while its ranks work.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "cluster_parts.hpp"

namespace hixl::sim {

namespace {

/// Looks between two rounds: each looks at one life, so that a run of a few thousand looks sees every slot often.
constexpr std::uint64_t k_round_looks = 4;
/// L2. The end comes at most a fence and a lease after the deadline; plus two seconds for loops that were held up.
constexpr Duration k_late_max =
    std::chrono::milliseconds(200) + std::chrono::milliseconds(3000) + std::chrono::milliseconds(2000);

}  // namespace

bool Cluster::Operation::arrived(const Part& part) const {
  return part.size == 0 ||
         std::memcmp(changed(part).slot(changed_slot(part)) + changed_offset(part), part.bytes->data(), part.size) == 0;
}

/// S6: whoever sees the signal finds the data.
void Cluster::check_signals() {
  for (Operation* operation : open_) {
    if (!operation->signalled || operation->signal_seen || !operation->signal_fired()) continue;
    operation->signal_seen = true;
    if (!operation->arrived(operation->parts.front())) {
      violate("S6", fmt::format("the signal of operation {} was visible before its data", operation->number));
    }
  }
}

/// The oldest operation to that rank that is open and was posted before operation `number`.
const Cluster::Operation* Cluster::open_before(const Life& life, Rank to, std::uint64_t number) const {
  for (const Operation* earlier : open_) {
    if (earlier->number >= number) return nullptr;
    if (earlier->life == &life && earlier->to == to) return earlier;
  }
  return nullptr;
}

/// S7: behind a fence no byte moves while something before it is open, whatever became of the fence.
void Cluster::check_fences() {
  for (Operation* operation : open_) {
    if (operation->behind == 0 || operation->begun || operation->life->dead) continue;
    const Operation* earlier = open_before(*operation->life, operation->to, operation->behind);
    if (earlier != nullptr) operation->waited = true;
    for (const Part& part : operation->parts) {
      operation->begun = operation->begun || operation->changed(part).moved(operation->changed_slot(part));
    }
    if (!operation->begun) continue;
    if (operation->waited) count(Rare::waited_behind_fence);
    if (earlier == nullptr) continue;
    violate("S7", fmt::format("operation {}, behind fence {}, moved bytes before operation {} had ended",
                              operation->number, operation->behind, earlier->number));
  }
}

void Cluster::complain(const char* invariant, const Memory& memory, std::size_t slot, Rank rank) {
  const std::string complaint = memory.complaint(slot);
  if (!complaint.empty()) violate(invariant, fmt::format("slot {} of rank {}: {}", slot, rank, complaint));
}

/// S1, S4, S10: nothing changes but by an open operation, and by that only as it should.
void Cluster::check_memory(const Life& life) {
  if (life.dead && !life.left) return;
  for (std::size_t slot = 0; slot < k_slots; ++slot) {
    complain(life.memory->use(slot) == Memory::Use::written ? "S1" : "S4", *life.memory, slot, life.rank);
  }
  check_words(*life.memory, life.rank);
}

void Cluster::check_deadlines() {
  for (const Operation* operation : open_) {
    const Life& life = *operation->life;
    const Instant limit = operation->deadline + k_late_max + (life.paused - operation->paused_before);
    if (world_.now() <= std::max(limit, life.awake_at + k_late_max)) continue;
    violate("L2", fmt::format("operation {} of rank {} to rank {} is open long after its deadline", operation->number,
                              life.rank, operation->to));
    return;
  }
}

/// S9: sessions and generations never go back. A session may start afresh once for each new life of the peer.
void Cluster::check_links(Life& life) {
  std::vector<bool> up(shape_.size);
  for (const LinkInfo& link : life.core->links()) {
    Life::Seen& seen = life.seen[{link.rank, link.id}];
    up[link.rank] = up[link.rank] || link.up;
    if (link.generation < seen.generation) {
      violate("S9", fmt::format("rank {}: generation of link {} to rank {} went from {} to {}", life.rank, link.id,
                                link.rank, seen.generation, link.generation));
    }
    if (link.session < seen.session && ++seen.fresh_starts > births_[link.rank]) {
      violate("S9", fmt::format("rank {}: session with rank {} went from {} to {}", life.rank, link.rank, seen.session,
                                link.session));
    }
    if (seen.session != 0 && link.session > seen.session) count(Rare::sessions_renewed);
    seen.session = link.session;
    seen.generation = link.generation;
  }
  for (const Operation* operation : open_) {
    if (operation->life != &life || up[operation->to]) continue;
    count(Rare::no_link_left);
    break;
  }
}

/// S13: a rank that has stopped holds nothing of the world any more.
void Cluster::check_left(const Life& life) {
  const runtime::VirtualHoldings held = world_.holdings(*life.port);
  const std::size_t watches = held.death_watches + held.card_watches;
  const CardHoldings cards = rdma_ != nullptr ? rdma_->holdings(*life.port) : CardHoldings{};
  if (held.listeners + held.streams + watches + cards.queue_pairs + cards.queues + cards.regions + cards.devices == 0) {
    return;
  }
  violate("S13", fmt::format("rank {} has stopped and holds {} listeners, {} streams, {} watches, {} queue pairs, {} "
                             "completion queues, {} registrations, {} devices",
                             life.rank, held.listeners, held.streams, watches, cards.queue_pairs, cards.queues,
                             cards.regions, cards.devices));
}

void Cluster::count_cards() {
  const links::RdmaCounts& counts = rdma_->counts();
  count(Rare::rdma_hidden, counts.hidden);
  count(Rare::rdma_retry_exceeded, counts.retry_exceeded);
  count(Rare::rdma_access_refused, counts.access_refused);
  count(Rare::rdma_local_refused, counts.local_refused);
  count(Rare::rdma_flushed, counts.flushed);
  count(Rare::rdma_ghosts_landed, counts.ghosts_landed);
  count(Rare::rdma_ghosts_refused, counts.ghosts_refused);
  count(Rare::rdma_read_ghosts, counts.read_ghosts);
  count(Rare::rdma_overruns, counts.overruns);
  count(Rare::rdma_event_whims, counts.whims);
  count(Rare::rdma_slept_through, counts.slept_through);
  count(Rare::rdma_ports_down, counts.ports_down);
  count(Rare::rdma_gids_changed, counts.gids_changed);
  count(Rare::rdma_cards_pulled, counts.devices_removed);
  count(Rare::rdma_events_reordered, counts.events_reordered);
  count(Rare::rdma_pairs_failed, counts.queue_pairs_failed);
  count(Rare::rdma_registrations_failed, counts.registrations_failed);
  count(Rare::rdma_numbers_reused, counts.numbers_reused);
  count(Rare::rdma_closed_busy, counts.regions_closed_busy);
}

/// S13: long after the last death, what was held for the sake of the dead has gone.
void Cluster::check_baseline() {
  for (const Life* life : ranks_) {
    if (life == nullptr) continue;
    const runtime::VirtualHoldings held = world_.holdings(*life->port);
    const auto links = life->core->links();
    if (rdma_ != nullptr) {
      // Of each link one queue pair, and one that is being set up.
      const CardHoldings cards = rdma_->holdings(*life->port);
      if (cards.queue_pairs > 2 * links.size() || cards.devices > shape_.rails) {
        violate("S13", fmt::format("rank {} holds {} queue pairs of {} devices for {} links", life->rank,
                                   cards.queue_pairs, cards.devices, links.size()));
      }
    }
    if (held.streams_to_dead > 0) {
      violate("S13", fmt::format("rank {} holds {} streams to the dead", life->rank, held.streams_to_dead));
    }
    // One to the store, one a link; a dial may be under way for each link that is not up.
    if (held.streams > 1 + links.size() || held.death_watches > shape_.size - 1) {
      violate("S13", fmt::format("rank {} holds {} streams for {} links and {} watches for {} peers", life->rank,
                                 held.streams, links.size(), held.death_watches, shape_.size - 1));
    }
  }
}

void Cluster::check_round() {
  if (++looks_ % k_round_looks != 0) return;
  check_deadlines();
  check_lies();
  check_barrier_deadlines();
  const auto& life = lives_[looks_ / k_round_looks % lives_.size()];
  check_memory(*life);
  if (!life->dead) check_links(*life);
}

void Cluster::violate(const std::string& invariant, const std::string& text) {
  say("VIOLATION {}: {}", invariant, text);
  if (!violation_) violation_ = Violation{invariant, text};
}

void Cluster::judge_end(Operation& operation, const Completion& completion) {
  Knowledge& known = operation.life->pairs[operation.to];
  if (completion.result) {
    known.successes_since_heal += faults_ ? 0 : 1;
    count(Rare::succeeded);
    if (world_.now() > operation.deadline) count(Rare::late_success);
    if (operation.cancelled) count(Rare::cancelled_in_vain);
    judge_success(operation);
  } else {
    known.last_error = completion.result.error();
    judge_failure(operation, known.last_error.code);
  }
}

std::uint64_t Cluster::broken_links(const Life& life, Rank to) {
  std::uint64_t sum = 0;
  for (const LinkInfo& link : life.core->links()) sum += link.rank == to ? link.failures : 0;
  return sum;
}

void Cluster::note_settled() {
  if (settled_ || world_.now() < settled_at_) return;
  settled_ = true;
  for (Life* life : ranks_) {
    for (Rank to = 0; life != nullptr && to < shape_.size; ++to) {
      life->pairs[to].broken_when_settled = broken_links(*life, to);
    }
  }
}

/// L1: retries are used up by links that broke. When the world has healed and what was under way then is over, none
/// breaks any more, so no operation of that time fails by it. One that was posted before may be told late: what its
/// target executed is not known before the two meet again.
void Cluster::judge_retries(const Operation& operation) {
  if (faults_ || world_.now() < settled_at_) return;
  note_settled();
  if (operation.posted >= settled_at_) {
    violate("L1", fmt::format("operation {}, posted in a healed world, ended as its links broke", operation.number));
  } else if (broken_links(*operation.life, operation.to) > operation.life->pairs[operation.to].broken_when_settled) {
    violate("L1", fmt::format("links broke under operation {} in a healed world", operation.number));
  }
}

void Cluster::judge_success(Operation& operation) {
  // The target that serves this life has fenced all earlier ones of the rank.
  operation.remote->lift(first_life(operation.life->rank) + 1, operation.life->number);
  for (const Part& part : operation.parts) {
    if (!operation.arrived(part)) {
      violate("S3", fmt::format("operation {} succeeded, but its {} bytes are not there", operation.number, part.size));
    }
  }
  if (operation.signalled && !operation.signal_fired()) {
    violate("S6", fmt::format("operation {} succeeded, but its signal is {} instead of {}", operation.number,
                              operation.remote->signal(operation.parts.front().remote_slot), operation.signal_after));
  }
}

/// S7: a flush or fence ends after everything before it.
void Cluster::judge_order(Operation& operation, const Completion& completion) {
  if (!completion.result) {
    count(operation.fence ? Rare::fences_failed : Rare::flushes_failed);
    return;
  }
  if (operation.fence) count(Rare::fences_passed);
  if (const Operation* earlier = open_before(*operation.life, operation.to, operation.number); earlier != nullptr) {
    violate("S7", fmt::format("{} {} ended before operation {}", operation.fence ? "fence" : "flush", operation.number,
                              earlier->number));
  }
}

}  // namespace hixl::sim
