// SPDX-License-Identifier: Apache-2.0
//
// What somebody waits for at a peer, and whom to tell.
#pragma once

#include <cstdint>
#include <vector>

#include <hixl/memory.hpp>
#include <hixl/result.hpp>

#include "base/time.hpp"
#include "wire/messages.hpp"

namespace hixl::peer {

/// What an exchange waits for.
enum class ExchangeEnd : std::uint8_t {
  answered,      ///< the peer has our regions, and has sent an exchange of its own
  acknowledged,  ///< the peer has our regions; its program is not asked for anything
};

/// One exchange that a program waits for.
struct ExchangeWait {
  Instant deadline{};
  void (*done)(void* context, PeerAddresses&& answer) = nullptr;  ///< once, never inline from exchange()
  void* context = nullptr;
  std::uint64_t group = 0;  ///< answered by the peer's next exchange in the same group; 0: in none
  ExchangeEnd end = ExchangeEnd::answered;
};

/// An exchange of the peer whose frames are coming in.
struct ArrivingExchange {
  std::uint64_t number = 0;
  std::uint64_t group = 0;
  bool again = false;  ///< told once more, unasked
  std::vector<wire::RegionDescriptor> regions{};
  std::uint32_t seen = 0;  ///< descriptors, with those beyond the limit of regions, which are not kept
  Error refused{};         ///< why the first one that was not accepted here was not; ok: all are
};

/// One that is whole, for the program.
struct ArrivedExchange {
  std::uint64_t group = 0;
  std::vector<RemoteRegion> regions;
  Error refused{};
};

/// Somebody who waits until the links to a rank are there.
struct ConnectWait {
  Instant deadline{};
  void (*done)(void* context, const Result<void>& result) = nullptr;  ///< once, never inline from prewarm()
  void* context = nullptr;
};

}  // namespace hixl::peer
