// SPDX-License-Identifier: Apache-2.0
//
// Marks: how far each sequence has been moved between two registrations of caches, so that only what is new moves. A
// mark holds for the very blocks that were written: where the list of blocks differs, it counts up to the first
// difference. When the lease under which they were pushed has ended they were their owner's in between, and it counts
// for nothing.
//
// Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include <hixl/kv/cache.hpp>
#include <hixl/types.hpp>

namespace hixl::kv {

struct MarkKey {
  std::uint64_t sequence = 0;
  Rank rank = k_no_rank;
  std::uint64_t incarnation = 0;     // of that rank
  std::uint64_t remote_version = 0;  // of the cache there
  std::uint64_t local_version = 0;
  TransferVerb verb = TransferVerb::put;
  Range layers{};
  Range heads{};
  std::uint32_t target_layer = 0;
  [[nodiscard]] auto tie() const {
    return std::tie(sequence, rank, incarnation, remote_version, local_version, verb, layers.first, layers.last,
                    heads.first, heads.last, target_layer);
  }
  friend bool operator<(const MarkKey& a, const MarkKey& b) { return a.tie() < b.tie(); }
};

class Marks {
 public:
  explicit Marks(std::size_t sequences_max) : sequences_max_(sequences_max) {}
  /// What a transfer writes into.
  struct Target {
    std::span<const std::uint32_t> blocks;
    std::uint32_t block_tokens = 0;
    std::uint64_t lease = 0;  ///< by which they are used; 0: by none
  };
  /// First token that is not there yet. Nothing: another transfer of it is open. Ended by end().
  [[nodiscard]] std::optional<std::uint32_t> begin(const MarkKey& key, const Target& target);
  /// With success all tokens up to `tokens` are there.
  void end(const MarkKey& key, bool success, std::uint32_t tokens);
  void rewind(std::uint64_t sequence, std::uint32_t tokens);
  /// What was moved to or from that registration counts no more.
  void forget_local(std::uint64_t version);
  void forget_rank(Rank rank);
  [[nodiscard]] std::size_t size() const noexcept { return marks_.size(); }

 private:
  struct Mark {
    std::uint32_t tokens = 0;
    std::uint32_t rewound_to = 0xffffffffU;  // while open
    std::vector<std::uint32_t> blocks;
    std::uint64_t lease = 0;
    bool open = false;
    std::list<MarkKey>::iterator used;
  };
  template <class Which>
  void forget_if(Which&& which);

  std::size_t sequences_max_;
  std::map<MarkKey, Mark> marks_;
  std::list<MarkKey> by_use_;  // used longest ago first
};

}  // namespace hixl::kv
