// SPDX-License-Identifier: Apache-2.0
//
// The identifiers of the protocol (semantics, section 2). All fixed width, all on the wire little-endian.
#pragma once

#include <cstdint>

#include <hixl/types.hpp>

namespace hixl {

/// Name of a rank's place in a job; stays across restarts.
struct PeerId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend auto operator<=>(const PeerId&, const PeerId&) = default;
};

using Incarnation = std::uint64_t;  ///< random, new at each start of a runtime; 0 means none
using Birth = std::uint64_t;        ///< orders the lives of one rank: given with the claim of the rank; 0 means none
using SessionId = std::uint32_t;    ///< rises on each accepted handshake between two incarnations; 0 means none
using LinkId = std::uint16_t;       ///< index of a link within a peer
using LinkGen = std::uint32_t;      ///< rises on every reconnect and on every fence; starts at 1
using LinkSeq = std::uint64_t;      ///< counts sequenced frames of one link generation and direction; starts at 1
using OpId = std::uint64_t;         ///< rises per initiator incarnation; never reused
using AtomicSeq = std::uint64_t;    ///< counts the atomics of one incarnation that another one executes; starts at 1

}  // namespace hixl
