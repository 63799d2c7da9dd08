// SPDX-License-Identifier: Apache-2.0
//
// What a Cluster is made of: lives of ranks and operations of the workload.
#pragma once

#include <set>

#include "cluster.hpp"

namespace hixl::sim {

/// Healing that takes longer may be up to a zombie, which its supervisor then ends.
inline constexpr std::chrono::seconds k_zombie_patience{20};

/// What one life knows of another rank.
struct Knowledge {
  std::optional<RemoteRegion> region;
  std::shared_ptr<Memory> memory;  ///< whose memory the region is
  bool exchanging = false;
  Instant exchanging_since{};
  std::uint64_t successes_since_heal = 0;
  std::uint64_t fence = 0;                ///< the newest to that rank
  std::uint64_t broken_when_settled = 0;  ///< connections to it that had broken or not come about by settled_at_
  Error last_error{};                     ///< of a post, an exchange or an operation
};

struct Cluster::Life {
  Rank rank = 0;
  std::uint64_t number = 0;  ///< the rank in the upper half, its lives from 1 in the lower
  bool joined = false;       ///< or failed to
  bool leaving = false;      ///< stop() was called
  bool left = false;         ///< stop() has ended: nobody may touch its memory any more
  bool dead = false;         ///< killed, replaced, or left
  bool turning = false;      ///< its region is being deregistered
  bool closing = false;      ///< the cluster is being taken down
  runtime::EventPort* port = nullptr;
  std::shared_ptr<Memory> memory;
  std::unique_ptr<core::Core> core;
  Region region{};
  std::set<std::pair<std::uint32_t, std::uint32_t>> keys;  ///< of all its regions: id and generation
  std::uint32_t inline_max = 0;
  Duration lease{};
  Duration paused{};   ///< in sum
  Instant awake_at{};  ///< stopped until then
  std::vector<Knowledge> pairs;
  BarrierCall* barrier = nullptr;  ///< open
  std::uint64_t barriers_since_heal = 0;
  struct Seen {
    std::uint32_t session = 0, generation = 0, fresh_starts = 0;
  };
  std::map<std::pair<Rank, LinkId>, Seen> seen;  ///< for S9
};

/// One call of Runtime::barrier() with all ranks.
struct Cluster::BarrierCall {
  Cluster* cluster;
  Life* life;
  Instant deadline{};
  Duration paused_before{};  ///< of its life
  bool ended = false;
};

struct Cluster::ExchangeNote {
  Cluster* cluster;
  Life* life;
  Rank with;
};

struct Cluster::Turnover {
  Cluster* cluster;
  Life* life;
};

struct Cluster::Part {
  bool get = false;
  bool copied = false;  ///< the library took the bytes in the call, so that the source was free at once
  std::size_t local_slot = 0, remote_slot = 0;
  std::size_t local_offset = 0, remote_offset = 0;
  std::size_t size = 0;
  Bytes bytes;  ///< of the source at the time of the post
};

struct Cluster::Operation {
  Cluster* cluster = nullptr;
  Life* life = nullptr;
  std::uint64_t number = 0;
  Rank to = 0;
  bool flush = false;
  bool fence = false;
  bool batch = false;
  bool ended = false;
  bool cancelled = false;  ///< was asked to end
  Request request;         ///< while it is open
  bool orphaned = false;   ///< its rank was killed before it ended
  std::vector<Part> parts;
  std::shared_ptr<Memory> remote;  ///< the target's memory
  RemoteRegion region{};
  bool signalled = false;  ///< single puts only
  SignalOp signal_op = SignalOp::set;
  std::uint64_t signal_value = 0, signal_after = 0;
  bool signal_seen = false;
  std::optional<WordHistory::Entry> atomic;  ///< instead of parts
  std::size_t history_index = 0;             ///< of the remote memory's history
  std::uint64_t behind = 0;                  ///< number of the newest fence before it to the same rank; 0: none
  bool begun = false;                        ///< was seen to have moved a byte
  bool waited = false;                       ///< was seen to wait for that fence
  Instant posted{};
  Instant deadline{};
  Duration paused_before{};  ///< of its life

  [[nodiscard]] Memory& changed(const Part& part) const { return part.get ? *life->memory : *remote; }
  [[nodiscard]] std::size_t changed_slot(const Part& part) const {
    return part.get ? part.local_slot : part.remote_slot;
  }
  [[nodiscard]] std::size_t changed_offset(const Part& part) const {
    return part.get ? part.local_offset : part.remote_offset;
  }
  [[nodiscard]] bool arrived(const Part& part) const;  ///< all bytes are there
  [[nodiscard]] bool signal_fired() const {
    return signalled && remote->signal(parts.front().remote_slot) == signal_after;
  }
};

}  // namespace hixl::sim
