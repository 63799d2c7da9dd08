// SPDX-License-Identifier: Apache-2.0
//
// How simulated RDMA cards fail, and how often they did: numbers, for builds without verbs as well.
#pragma once

#include <cstdint>

#include "base/choices.hpp"
#include "base/time.hpp"

namespace hixl::links {

/// How bad the cards are. As constructed: nothing fails, but no more is promised than the rules say.
struct RdmaPlan {
  Duration delay_min{1'000};  ///< of a packet and of an answer
  Duration delay_max{20'000};
  std::uint32_t packet_bytes_max = 4096;
  std::uint32_t early_per_mille = 500;   ///< of packets: their bytes are taken at the post, the others' as they leave
  std::uint32_t hidden_per_mille = 300;  ///< of written packets: seen up to hidden_max after they were acknowledged
  Duration hidden_max{100'000};
  std::uint32_t sent_per_mille = 500;     ///< of what a failing queue pair has not sent yet: is sent all the same
  Duration drain_max{50'000};             ///< from the error state to the flush completions
  std::uint32_t whim_per_mille = 300;     ///< of armings: an event without a completion; of events: a late one
  Duration work_max{100'000};             ///< what registering or deregistering takes
  std::uint32_t reuse_per_mille = 700;    ///< of new queue pairs: get the number of the one that ended last
  std::uint32_t new_gid_per_mille = 700;  ///< of ports that come back: with another address

  std::uint32_t late_per_mille = 0;  ///< of queue pairs that fail: what they have sent lands up to late_max later
  Duration late_max{2'000'000'000};
  std::uint32_t path_per_mille = 0;  ///< of posts: from now on requests, answers or both are lost, up to path_max
  Duration path_max{2'000'000'000};
  std::uint32_t rnr_per_mille = 0;       ///< of messages that take a receive: there is none for some time
  std::uint32_t remote_per_mille = 0;    ///< of posts: the target refuses it, for no reason
  std::uint32_t local_per_mille = 0;     ///< of posts: the own card refuses it
  std::uint32_t overrun_per_mille = 0;   ///< of completions: their queue has no room
  std::uint32_t open_per_mille = 0;      ///< of devices to be opened: cannot be
  std::uint32_t create_per_mille = 0;    ///< of queue pairs: cannot be made, or not brought up
  std::uint32_t register_per_mille = 0;  ///< of regions: the memlock limit
  std::uint32_t mtu_per_mille = 0;       ///< of cards, once: a small MTU
  std::uint32_t overtake_per_mille = 0;  ///< of events of a card: told before older ones

  /// A swarm member: each kind of fault is switched on or off first, then gets a rate.
  [[nodiscard]] static RdmaPlan draw(Choices& choices);
};

/// What has happened, for whoever must know that it does.
struct RdmaCounts {
  std::uint64_t hidden = 0;            ///< packets whose write was told as complete before they could be seen
  std::uint64_t retry_exceeded = 0;    ///< completions: nothing came back
  std::uint64_t rnr_exceeded = 0;      ///< the same: the target had no receive
  std::uint64_t access_refused = 0;    ///< the same: the target allows no such access
  std::uint64_t local_refused = 0;     ///< the same: the own card does not know the memory
  std::uint64_t request_invalid = 0;   ///< the same: too long for the target, unaligned, or beyond its reads
  std::uint64_t flushed = 0;           ///< completions of failed queue pairs
  std::uint64_t flushed_executed = 0;  ///< of these: writes that the target had executed
  std::uint64_t ghosts_landed = 0;     ///< packets executed after their queue pair had failed, or its process died
  std::uint64_t ghosts_refused = 0;    ///< such packets for which the target had no queue pair any more
  std::uint64_t read_ghosts = 0;       ///< answers that wrote local memory of a queue pair which had failed
  std::uint64_t overruns = 0;
  std::uint64_t whims = 0;          ///< events without a completion, or later than it
  std::uint64_t slept_through = 0;  ///< completions that made no event: nobody had armed
  std::uint64_t ports_down = 0;
  std::uint64_t gids_changed = 0;
  std::uint64_t devices_removed = 0;
  std::uint64_t events_reordered = 0;
  std::uint64_t queue_pairs_failed = 0;  ///< that could not be made or brought up
  std::uint64_t registrations_failed = 0;
  std::uint64_t numbers_reused = 0;
  std::uint64_t regions_closed_busy = 0;  ///< deregistered while a packet for them was under way
};

}  // namespace hixl::links
