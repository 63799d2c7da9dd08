// SPDX-License-Identifier: Apache-2.0
//
// What somebody waits for at a peer, and whom to tell.
#pragma once

#include <cstdint>

#include <hixl/memory.hpp>
#include <hixl/result.hpp>

#include "base/time.hpp"

namespace hixl::peer {

/// One exchange that a program waits for.
struct ExchangeWait {
  Instant deadline{};
  void (*done)(void* context, PeerAddresses&& answer) = nullptr;  ///< once, never inline from exchange()
  void* context = nullptr;
  std::uint64_t group = 0;  ///< answered by the peer's next exchange in the same group; 0: in none
};

/// Somebody who waits until the links to a rank are there.
struct ConnectWait {
  Instant deadline{};
  void (*done)(void* context, const Result<void>& result) = nullptr;  ///< once, never inline from prewarm()
  void* context = nullptr;
};

}  // namespace hixl::peer
