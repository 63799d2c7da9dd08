// SPDX-License-Identifier: Apache-2.0
//
// The rare states that a run of many seeds must have reached, or it proves nothing about them. Counted from outside
// the actors, by the cluster, the fabric and the taps on the links.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hixl::sim {

// States of RDMA cards, which a build without verbs does not have.
#define HIXL_SIM_RARE_RDMA(X)                                                                      \
  X(rdma_hidden, true, "RDMA packets whose write was complete before they could be seen")          \
  X(rdma_retry_exceeded, true, "RDMA requests to which nothing came back")                         \
  X(rdma_access_refused, false, "RDMA requests that the target's card refused")                    \
  X(rdma_local_refused, false, "RDMA requests that the own card refused")                          \
  X(rdma_flushed, false, "RDMA requests flushed behind a failure")                                 \
  X(rdma_ghosts_landed, false, "RDMA packets executed after their queue pair had failed or died")  \
  X(rdma_ghosts_refused, true, "such packets that found no queue pair any more")                   \
  X(rdma_read_ghosts, false, "RDMA reads that wrote local memory of a queue pair that had failed") \
  X(rdma_overruns, false, "completion queues that overran")                                        \
  X(rdma_event_whims, true, "completion events without a completion, or later than it")            \
  X(rdma_slept_through, true, "completions that made no event")                                    \
  X(rdma_ports_down, true, "RDMA ports that went down")                                            \
  X(rdma_gids_changed, true, "RDMA ports that came back with another address")                     \
  X(rdma_cards_pulled, true, "RDMA cards that were taken away")                                    \
  X(rdma_events_reordered, false, "events of RDMA cards that overtook older ones")                 \
  X(rdma_pairs_failed, true, "queue pairs that could not be made or connected")                    \
  X(rdma_registrations_failed, true, "registrations that the memlock limit refused")               \
  X(rdma_numbers_reused, true, "queue pairs with the number of an earlier one")                    \
  X(rdma_closed_busy, false, "registrations ended while an RDMA packet was on its way there")      \
  X(rdma_links_up, true, "roce link generations that came up")

// name, whether a run of 200 seeds must reach it (one seed in thirty does), what it is
#define HIXL_SIM_RARE(X)                                                                           \
  X(succeeded, true, "operations that succeeded")                                                  \
  X(deadline_over, true, "operations that ended at their deadline")                                \
  X(peer_lost, true, "operations that ended with PEER_LOST")                                       \
  X(fenced, false, "operations that ended because the peer began a new session")                   \
  X(peer_gone, false, "operations to a rank that left in order")                                   \
  X(stopped, false, "operations cut short by their own runtime's stop")                            \
  X(stale, true, "operations refused because the region is gone")                                  \
  X(late_success, true, "operations that succeeded after their deadline")                          \
  X(cancelled, true, "operations that ended because they were cancelled")                          \
  X(cancelled_in_vain, true, "operations that succeeded although they were cancelled")             \
  X(cut_in_half, true, "failed operations of which part was written")                              \
  X(signal_without_success, true, "failed operations whose signal was fired")                      \
  X(quarantined, true, "slots whose target could not be asked")                                    \
  X(orphaned, true, "open operations of a rank that was killed")                                   \
  X(fences_passed, true, "fences that ended because all before them had ended")                    \
  X(fences_failed, true, "fences cut short by deadline, death or stop")                            \
  X(flushes_failed, true, "flushes cut short by deadline, death or stop")                          \
  X(waited_behind_fence, true, "operations that waited behind a fence, then moved")                \
  X(killed, true, "kills")                                                                         \
  X(left, true, "ranks that left in order")                                                        \
  X(replaced, true, "ranks taken by a new life while the old one still lived")                     \
  X(rank_taken, false, "new lives that found their rank held by an older one")                     \
  X(restarted, true, "new lives of ranks")                                                         \
  X(paused_beyond_lease, false, "stops of a process for longer than the lease")                    \
  X(stopped_within_lease, false, "stops of a process for less than its lease, in a healthy world") \
  X(regions_turned_over, true, "regions deregistered under load")                                  \
  X(sessions_renewed, true, "new sessions between the same two lives")                             \
  X(links_up, true, "link generations that came up")                                               \
  X(links_broken, true, "link generations that broke by themselves")                               \
  X(bits_flipped, true, "frames of which a bit was flipped")                                       \
  X(retries_exhausted, false, "operations under which links broke too often")                      \
  X(given_up_as_corrupt, false, "operations whose bytes changed in every attempt")                 \
  X(net_faults, true, "faults that the network brought by itself")                                 \
  X(squeezed, true, "directions between two ranks that became slow")                               \
  X(descriptors_inherited, false, "kills whose connections a child held open")                     \
  X(stopped_in_callback, false, "runtimes stopped in a callback of theirs")                        \
  X(no_time_at_all, true, "operations whose deadline was the moment of their post")                \
  X(no_link_left, true, "moments at which a peer with open operations had no link")                \
  X(posts, true, "attempts posted")                                                                \
  X(resent, true, "attempts of a chunk that had been tried before")                                \
  X(resent_again, true, "third and later attempts: a failure during the replay")                   \
  X(signals_resent, true, "attempts of a signal that had been tried before")                       \
  X(atomics, true, "atomics that succeeded")                                                       \
  X(late_atomics, true, "atomics that succeeded after their deadline")                             \
  X(outcome_unknown, true, "atomics of which nobody can know")                                     \
  X(atomics_resent, true, "attempts of an atomic that had been tried before")                      \
  X(atomics_asked, true, "questions about atomics whose end was due")                              \
  X(answers_repeated, true, "atomics answered from the target's window")                           \
  X(window_full, true, "atomics for which the target's window had no room")                        \
  X(unresolved, true, "attempts that only the target could tell about")                            \
  X(fence_requests, true, "fence requests sent")                                                   \
  X(fence_answers, true, "fence answers received")                                                 \
  X(fence_answers_repeated, true, "fence answers about attempts known already")                    \
  X(fence_messages_lost, true, "fence requests and answers thrown away")                           \
  X(fence_messages_repeated, true, "fence requests and answers sent twice or later")               \
  X(resolved_executed, true, "attempts that a fence answer found executed")                        \
  X(resolved_not_executed, true, "attempts that a fence answer found not executed")                \
  X(resolved_by_handshake, true, "attempts open until the link's next handshake")                  \
  X(reads_taken_back, true, "reads abandoned at the end of their operation")                       \
  X(reads_kept, false, "reads that could not be abandoned at once")                                \
  X(refused, true, "attempts that the target refused")                                             \
  X(revoke_waited, false, "regions that a link still touched when they were closed")               \
  X(barriers_passed, true, "barrier calls that succeeded")                                         \
  X(barriers_missed, true, "barrier calls that ended at their deadline")                           \
  X(barriers_with_dead, true, "barrier calls that ended with PEER_LOST")                           \
  X(ghosts_landed, true, "pieces that landed after their initiator had given up")                  \
  X(ghosts_refused, true, "pieces of closed links that the target kept out")                       \
  X(misused, true, "requests for what nobody may have, refused in the call")                       \
  X(lies, true, "attempts for what was not granted, which got as far as the target")               \
  X(lies_told, true, "operations that ended as such an attempt was refused")                       \
  HIXL_SIM_RARE_RDMA(X)

enum class Rare : std::uint8_t {
#define HIXL_SIM_NAME(name, required, text) name,
  HIXL_SIM_RARE(HIXL_SIM_NAME)
#undef HIXL_SIM_NAME
      count_,
};

struct RareInfo {
  [[nodiscard]] bool of_rdma() const noexcept { return name.starts_with("rdma_"); }
  std::string_view name;
  bool required;
  std::string_view text;
};
inline constexpr RareInfo k_rare[] = {
#define HIXL_SIM_INFO(name, required, text) {#name, required, text},
    HIXL_SIM_RARE(HIXL_SIM_INFO)
#undef HIXL_SIM_INFO
};
inline constexpr std::size_t k_rare_count = static_cast<std::size_t>(Rare::count_);

struct RareCounts {
  std::array<std::uint64_t, k_rare_count> counts{};
  void add(Rare which, std::uint64_t by = 1) noexcept { counts[static_cast<std::size_t>(which)] += by; }
};

}  // namespace hixl::sim
