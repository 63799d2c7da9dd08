// SPDX-License-Identifier: Apache-2.0
//
// Tap: a link around a link. Counts what passes between the peer room and its links, and loses, repeats and delays
// fence messages. It also lies for its initiator: some posts ask for more than was granted, which only the target can
// know. It changes nothing else, so that the actors on both sides cannot tell.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "links/link.hpp"
#include "rare.hpp"
#include "shape.hpp"

namespace hixl::sim {

/// A barrier's release on its way from the collector.
struct Release {
  std::uint64_t group;
  std::uint64_t number;
  Rank collector;
};

/// What all taps of a world share.
struct TapBoard {
  /// Highest barrier number that the present life of a rank has said it has entered, by group; and releases that
  /// nobody has looked at yet.
  std::map<std::pair<Rank, std::uint64_t>, std::uint64_t> entered{};
  std::vector<Release> releases{};
  /// Highest number that the present life of a collector has released, by group.
  std::map<std::pair<Rank, std::uint64_t>, std::uint64_t> released{};

  Choices random;
  ControlFaults faults{};
  std::uint32_t lie_per_mille = 0;  ///< of posts: ask the target for what it has not granted
  RareCounts& rare;
  /// Sent, not completed when their link closed: only the target can tell. By rank, peer's rank, link, generation.
  using Key = std::tuple<Rank, Rank, LinkId, LinkGen>;
  std::map<Key, std::set<LinkSeq>> unresolved{};
  std::uint64_t lies_refused = 0;  ///< and not yet told as the end of an operation
  std::uint64_t lies_granted = 0;
  /// Atomics that were posted: rank, peer's rank, operation. (A number may come again in another life, no harm done.)
  std::set<std::tuple<Rank, Rank, std::uint64_t>> asked{};
  /// Repeats and turned away of each window as last seen.
  std::map<const links::AtomicWindow*, std::pair<std::uint64_t, std::uint64_t>> windows{};
};

[[nodiscard]] std::unique_ptr<links::LinkFactory> make_tap(TapBoard& board, Rank self,
                                                           std::unique_ptr<links::LinkFactory> inner);

}  // namespace hixl::sim
