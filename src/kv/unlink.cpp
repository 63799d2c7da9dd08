// SPDX-License-Identifier: Apache-2.0
//
// How a link ends, and how a role changes, while transfers are under way.
#include <algorithm>

#include "movement.hpp"
#include "state.hpp"

namespace hixl::kv {

namespace {

/// After a cancel an operation ends with its fence, at the latest a lease later (5 s across hosts).
constexpr std::chrono::seconds k_fence_time{6};

}  // namespace

bool DataDist::State::gates_in_use(const Link& link) const noexcept {
  for (std::uint32_t gate = 0; gate < directory.gates_a_link(); ++gate) {
    if (gate::in_use(word(directory.gate(link.index, gate)).load())) return true;
  }
  return false;
}

void DataDist::State::close_gates(const Link& link) {
  for (std::uint32_t gate = 0; gate < directory.gates_a_link(); ++gate) {
    change(directory.gate(link.index, gate), [](std::uint64_t word) { return word | gate::k_closing; });
  }
}

void DataDist::State::end_leases_of(std::uint32_t link, LeaseEnd why) {
  leases.each([&](LeaseEntry& entry) {
    if (entry.link != link) return;
    leases.begin_end(entry, why, [&](const LeaseEntry& at) { shut(at); });
  });
}

void DataDist::State::cancel_moves(Rank rank, const Error& why) {
  std::vector<std::shared_ptr<Transfer::State>> open;
  {
    const std::lock_guard lock(mutex);
    open.assign(moves.begin(), moves.end());
  }
  for (const auto& transfer : open) {
    if (rank == k_no_rank || transfer->rank() == rank) transfer->end_early(why);
  }
}

Result<void> DataDist::State::unlink(Rank rank, Timeout timeout) {
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  if (const auto waited = may_block(); !waited) return waited;
  Link copy;
  {
    const std::lock_guard lock(mutex);
    const auto found = links.find(rank);
    if (found == links.end() || !found->second.open) return fail(error_of(ErrorCode::not_linked, rank));
    Link& link = found->second;
    link.linked = false;
    link.leaving = true;
    close_gates(link);
    end_leases_of(link.index, LeaseEnd::unlinked);
    marks.forget_rank(rank);
    copy = link;
  }
  std::shared_ptr<const std::atomic<bool>> told;
  if (alive(copy.directory)) told = tell(copy, LinkSays::unlinked);
  const auto unmoved = [&] {
    const std::lock_guard lock(mutex);
    return links.at(rank).moving == 0;
  };
  auto waited = await(*deadline, unmoved);
  if (!waited && waited.error().code == ErrorCode::deadline_exceeded) {
    cancel_moves(rank, error_of(ErrorCode::cancelled, rank));
    waited = await(now() + k_fence_time, unmoved);
  }
  if (!waited) return waited;
  const auto empty = [&] {
    look_at_leases();
    {
      const std::lock_guard lock(mutex);
      bool leased = false;
      leases.each([&](const LeaseEntry& entry) { leased = leased || entry.link == copy.index; });
      if (leased) return false;
    }
    const bool heard = !told || told->load();
    return (heard && !gates_in_use(copy)) || !alive(copy.directory);
  };
  if (const auto left_by_all = await(*deadline, empty); !left_by_all) return left_by_all;
  const std::lock_guard lock(mutex);
  Link& link = links.at(rank);
  if (link.leaving) link.open = link.leaving = false;  // else it has been linked anew meanwhile
  return {};
}

Result<void> DataDist::State::switch_role(Role role, Timeout timeout) {
  if (role < Role::prefill || role > Role::both) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = static_cast<std::uint64_t>(role)});
  }
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  if (const auto waited = may_block(); !waited) return waited;
  std::uint64_t bits = 0;
  {
    const std::lock_guard lock(mutex);
    role_now = role;
    bits = role_bits();
    for (const auto& [rank, link] : links) {
      for (const auto& [slot, cache] : caches) {
        change(directory.gate(link.index, slot), [&](std::uint64_t word) {
          return gate::generation(word) == 0 ? word : (word & ~gate::k_allowed_mask) | bits;
        });
      }
    }
    leases.each([&](const LeaseEntry& entry) {
      change(lease_gate(entry),
             [&](std::uint64_t word) { return (word & ~gate::k_allowed_mask) | (bits & gate::allowed(entry.access)); });
    });
  }
  const auto over = [&] {
    std::vector<Link> in_use;
    {
      const std::lock_guard lock(mutex);
      if (role_now != role) return true;  // another call has taken over
      for (const auto& transfer : moves) {
        const Access mine = transfer->verb() == TransferVerb::put ? Access::pull : Access::push;
        if ((bits & gate::allowed(mine)) == 0) return false;
      }
      for (const auto& [rank, link] : links) {
        for (std::uint32_t gate = 0; gate < directory.gates_a_link(); ++gate) {
          const std::uint64_t word = this->word(directory.gate(link.index, gate)).load();
          for (const Access access : {Access::pull, Access::push}) {
            if ((bits & gate::allowed(access)) == 0 && gate::users(word, access) > 0) in_use.push_back(link);
          }
        }
      }
    }
    return std::none_of(in_use.begin(), in_use.end(), [&](const Link& link) { return alive(link.directory); });
  };
  return await(*deadline, over);
}

}  // namespace hixl::kv
