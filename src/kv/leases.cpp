// SPDX-License-Identifier: Apache-2.0
//
// Leases that this rank grants, and those that it gives back.
#include <algorithm>
#include <utility>

#include "byte_plan.hpp"
#include "state.hpp"

namespace hixl::kv {

std::uint64_t DataDist::State::lease_gate(const LeaseEntry& entry) const noexcept {
  return directory.gate(entry.link, options.caches_max + entry.gate);
}

void DataDist::State::shut(const LeaseEntry& entry) {
  change(lease_gate(entry), [&](std::uint64_t word) {
    // A new life of the holder has begun the word anew.
    return gate::generation(word) == entry.gate_generation ? word | gate::k_closing : word;
  });
}

void DataDist::State::tell_ended(LeaseEntry&& entry) {
  if (entry.hook.function == nullptr) return;
  hop([entry = std::move(entry)] { entry.hook.function(entry.hook.context, entry.id, entry.end, entry.blocks); });
}

Result<Lease> DataDist::State::grant(const CacheId& id, const LeaseOptions& wanted) {
  const bool known_access = wanted.access == Access::pull || wanted.access == Access::push;
  const bool timed = wanted.time >= std::chrono::milliseconds(1) && wanted.time <= k_lease_time_max;
  if (!known_access || !timed || wanted.blocks.empty() || (wanted.layer_arrivals && wanted.access != Access::push)) {
    return fail(ErrorCode::invalid_argument,
                {.rank = wanted.holder,
                 .stage = Stage::kv,
                 .length = static_cast<std::uint64_t>(std::max<std::int64_t>(wanted.time.count(), 0)),
                 .limit = static_cast<std::uint64_t>(k_lease_time_max.count())});
  }
  if (link_state(wanted.holder) == LinkState::peer_lost) return fail(error_of(ErrorCode::peer_lost, wanted.holder));
  const std::lock_guard lock(mutex);
  if (closing.load()) return fail(error_of(ErrorCode::stopped, own_rank));
  const auto at = cache(id);
  if (!at) return fail(error_of(ErrorCode::cache_stale, own_rank));
  if (const auto valid = check_blocks(at->desc, wanted.blocks); !valid) return fail(valid.error());
  const auto found = links.find(wanted.holder);
  if (found == links.end() || !found->second.linked) return fail(error_of(ErrorCode::not_linked, wanted.holder));
  const Link& link = found->second;
  if ((role_bits() & gate::allowed(wanted.access)) == 0) return fail(error_of(ErrorCode::wrong_role, own_rank));
  if (wanted.layer_arrivals && at->desc.layout.layers > k_arrival_layers) {
    return fail(ErrorCode::limit_reached,
                {.stage = Stage::kv, .length = at->desc.layout.layers, .limit = k_arrival_layers});
  }
  const auto full = [&](std::uint64_t limit) {
    return fail(ErrorCode::limit_reached, {.rank = wanted.holder, .stage = Stage::kv, .length = limit, .limit = limit});
  };
  std::vector<bool> taken(options.leases_max, false);
  leases.each([&](const LeaseEntry& entry) {
    if (entry.link == link.index) taken[entry.gate] = true;
  });
  // Nor one in which somebody still counts: of a session that was lost, whose rank may yet come and take it back.
  for (std::uint32_t place = 0; place < options.leases_max; ++place) {
    if (gate::in_use(word(directory.gate(link.index, options.caches_max + place)).load())) taken[place] = true;
  }
  const auto free = std::find(taken.begin(), taken.end(), false);
  if (free == taken.end()) return full(options.leases_max);
  LeaseEntry entry;
  if (wanted.layer_arrivals) {
    const auto free_arrival = [&] { return std::find(arrivals_taken.begin(), arrivals_taken.end(), false); };
    auto place = free_arrival();
    if (place == arrivals_taken.end()) {
      const auto forgotten = leases.forget_oldest();
      if (!forgotten) return full(options.arrivals_max);
      arrivals_taken[*forgotten] = false;
      place = free_arrival();
    }
    entry.arrival = static_cast<std::uint32_t>(place - arrivals_taken.begin());
  }
  gate_generations = (gate_generations + 1) & gate::k_generation_mask;
  if (gate_generations == 0) gate_generations = 1;
  entry.link = link.index;
  entry.gate = static_cast<std::uint32_t>(free - taken.begin());
  entry.gate_generation = gate_generations;
  entry.cache_version = id.version;
  entry.layers = layers_of(at->desc);
  entry.access = wanted.access;
  entry.deadline = now() + wanted.time;
  entry.blocks.assign(wanted.blocks.begin(), wanted.blocks.end());
  entry.hook = wanted.on_end;
  LeaseEntry* const open = leases.open(std::move(entry));
  if (open == nullptr) return full(options.leases_max);
  if (open->arrival) {
    arrivals_taken[*open->arrival] = true;
    for (std::uint32_t layer = 0; layer < k_arrival_layers; ++layer) {
      word(directory.arrival(*open->arrival, layer)).store(0);
    }
  }
  word(directory.release(open->link, open->gate)).store(0);
  change(lease_gate(*open), [&](std::uint64_t before) {
    return gate::reopened(before, open->gate_generation, role_bits() & gate::allowed(wanted.access));
  });
  return Lease{.id = open->id,
               .ticket = {.owner = own_rank,
                          .holder = wanted.holder,
                          .incarnation = runtime.incarnation(),
                          .directory = region.key,
                          .key = at->desc.key,
                          .version = id.version,
                          .lease = open->id,
                          .gate = open->gate,
                          .gate_generation = open->gate_generation,
                          .arrival = open->arrival ? *open->arrival + 1 : 0,
                          .blocks = static_cast<std::uint32_t>(open->blocks.size()),
                          .access = wanted.access}};
}

Result<void> DataDist::State::end_lease(const LeaseId& id) {
  {
    const std::lock_guard lock(mutex);
    LeaseEntry* const entry = leases.find(id);
    if (entry == nullptr || entry->state != LeaseState::open) {
      if (const auto arrival = leases.forget(id)) arrivals_taken[*arrival] = false;
      return fail(error_of(ErrorCode::lease_ended, own_rank));
    }
    leases.begin_end(*entry, LeaseEnd::taken_back, [&](const LeaseEntry& at) { shut(at); });
  }
  ring_there(own(directory.bell()));  // the keeper looks
  return {};
}

Result<void> DataDist::State::extend(const LeaseId& id, std::chrono::milliseconds time) {
  if (time < std::chrono::milliseconds(1) || time > k_lease_time_max) {
    return fail(ErrorCode::invalid_argument,
                {.stage = Stage::kv, .limit = static_cast<std::uint64_t>(k_lease_time_max.count())});
  }
  const std::lock_guard lock(mutex);
  LeaseEntry* const entry = leases.find(id);
  if (entry == nullptr || entry->state != LeaseState::open) {
    return fail(error_of(ErrorCode::lease_ended, own_rank));
  }
  entry->deadline = now() + time;
  return {};
}

LeaseState DataDist::State::lease_state(const LeaseId& id) const {
  const std::lock_guard lock(mutex);
  const LeaseEntry* const entry = leases.find(id);
  return entry == nullptr ? LeaseState::ended : entry->state;
}

Result<bool> DataDist::State::layer_arrived(const LeaseId& id, std::uint32_t layer) const {
  const std::lock_guard lock(mutex);
  const LeaseEntry* const entry = leases.find_remembered(id);
  if (entry == nullptr) return fail(error_of(ErrorCode::lease_ended, own_rank));
  if (!entry->arrival) return fail(error_of(ErrorCode::invalid_argument, own_rank));
  if (layer < entry->layers.first || layer >= entry->layers.last) {
    return fail(ErrorCode::out_of_range, {.stage = Stage::kv, .length = layer, .limit = entry->layers.last});
  }
  const std::uint64_t at = directory.arrival(*entry->arrival, layer - entry->layers.first);
  if (word(at).load() == entry->gate_generation) return true;
  // Its last user has left, and what he had not sent by then never comes.
  if (entry->state == LeaseState::ended) return fail(error_of(ErrorCode::lease_ended, own_rank));
  return false;
}

Result<void> DataDist::State::wait_layer(const LeaseId& id, std::uint32_t layer, Timeout timeout) {
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  // The word itself is waited for: the sender rings no bell for it. Between naps the lease is looked at.
  constexpr Timeout k_nap = std::chrono::milliseconds(50);
  for (;;) {
    if (closing.load()) return fail(error_of(ErrorCode::stopped, own_rank));
    const auto arrived = layer_arrived(id, layer);
    if (!arrived) return fail(arrived.error());
    if (*arrived) return {};
    std::uint64_t at = 0;
    std::uint32_t wanted = 0;
    {
      const std::lock_guard lock(mutex);
      const LeaseEntry* const entry = leases.find_remembered(id);
      if (entry == nullptr) continue;
      at = directory.arrival(*entry->arrival, layer - entry->layers.first);
      wanted = entry->gate_generation;
    }
    const Timeout nap = std::min(left(*deadline), k_nap);
    const auto seen = runtime.wait_signal(region.data + at, Compare::equal, wanted, nap);
    if (!seen && seen.error().code != ErrorCode::deadline_exceeded) return fail(seen.error());
    if (!seen && now() >= *deadline) return fail(error_of(ErrorCode::deadline_exceeded, own_rank));
  }
}

Result<void> DataDist::State::release(const LeaseTicket& ticket) {
  GateThere gate;
  {
    const std::lock_guard lock(mutex);
    const auto found = links.find(ticket.owner);
    if (found == links.end() || !found->second.linked) return fail(error_of(ErrorCode::not_linked, ticket.owner));
    const Link& link = found->second;
    if (ticket.holder != own_rank || ticket.gate >= link.there.counts().leases) {
      return fail(error_of(ErrorCode::invalid_argument, ticket.owner));
    }
    if (!is_from(ticket, link.directory)) return fail(error_of(ErrorCode::lease_ended, ticket.owner));
    gate.release = link.directory;
    gate.release.address += link.there.release(link.index_there, ticket.gate);
    gate.bell = link.directory;
    gate.bell.address += link.there.bell();
    gate.generation = ticket.gate_generation;
  }
  give_back(gate);
  return {};
}

}  // namespace hixl::kv
