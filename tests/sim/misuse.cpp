// SPDX-License-Identifier: Apache-2.0
//
// Requests that must be refused: those of a program, in the call, and those that the taps make of valid ones, by the
// target.
#include <fmt/core.h>

#include <limits>

#include "cluster_parts.hpp"

namespace hixl::sim {

/// S11, S14: what was not granted is refused in the call, as the caller's fault, and moves nothing.
void Cluster::misuse(Life& life, Rank to) {
  const RemoteRegion& region = *life.pairs[to].region;
  const TransferVerb verb = random_.chance(500) ? TransferVerb::get : TransferVerb::put;
  std::byte* local = life.memory->data();
  std::uint64_t size = random_.between(1, k_slot_bytes);
  RemoteAddress remote = region.at(random_.below(region.length - size + 1));
  Signal signal;
  ErrorCode expected = ErrorCode::out_of_range;
  switch (random_.below(8)) {
    case 0:  // ends beyond the region
      remote = region.at(region.length - random_.below(size));
      break;
    case 1:  // its end wraps around
      size = std::numeric_limits<std::uint64_t>::max() - random_.below(region.length);
      break;
    case 2:  // begins before the region
      remote.address = region.base - random_.between(1, region.base);
      break;
    case 3:  // local memory beyond the registered; more than what a put copies at once
      size = random_.between(life.inline_max + 1ULL, k_slot_bytes);
      remote = region.at(0);
      local += life.memory->size() - random_.between(1, size - 1);
      break;
    case 4:
      remote.rank = shape_.size + static_cast<Rank>(random_.below(1000));
      expected = ErrorCode::rank_out_of_range;
      break;
    case 5:
      signal.word = region.at(Memory::signal_offset(0) + random_.between(1, k_signal_bytes - 1));
      expected = ErrorCode::unaligned;
      break;
    case 6:  // the word in the middle of the data
      size = k_slot_bytes;
      remote = region.at(0);
      signal.word = region.at(random_.below(k_slot_bytes / k_signal_bytes) * k_signal_bytes);
      expected = ErrorCode::overlap;
      break;
    default:  // a region that never was
      remote.region.generation += 1000;
      expected = ErrorCode::stale;
  }
  const bool signalled = signal.word.region.valid();
  const auto posted =
      life.core->post(signalled ? TransferVerb::put : verb, local, remote, size, signalled ? &signal : nullptr, {});
  if (posted) return violate("S11", fmt::format("rank {} was allowed what must give {}", life.rank, name(expected)));
  const ErrorCode code = posted.error().code;
  count(Rare::misused);
  // The peer's life, or its region, may have ended before the request was looked at.
  const bool over = code == ErrorCode::stale || code == ErrorCode::not_exchanged || code == ErrorCode::busy;
  if (code == expected || over) return;
  violate("S14", fmt::format("what must give {} gives {}", name(expected), posted.error().message()));
}

void Cluster::check_lies() {
  if (taps_.lies_granted > 0) violate("S11", "a target let an attempt have what it had not granted");
}

}  // namespace hixl::sim
