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

/// What an exchange belongs to: an exchange is answered by the peer's next one of the same group, a question by the
/// answer with the same tag. What is only told ends when the peer has it.
struct ExchangeStream {
  wire::ExchangeNote note = wire::ExchangeNote::exchange;
  std::uint64_t group = 0;  ///< or tag
  [[nodiscard]] ExchangeStream answered_by() const noexcept {
    return {note == wire::ExchangeNote::question ? wire::ExchangeNote::answer : note, group};
  }
  friend bool operator==(const ExchangeStream&, const ExchangeStream&) = default;
};

/// One exchange that a program waits for.
struct ExchangeWait {
  Instant deadline{};
  void (*done)(void* context, PeerAddresses&& answer) = nullptr;  ///< once, never inline from exchange()
  void* context = nullptr;
  ExchangeStream stream{};  ///< what is told belongs to it, and answers it
};

/// An exchange of the peer whose frames are coming in.
struct ArrivingExchange {
  std::uint64_t number = 0;
  ExchangeStream stream{};
  std::vector<wire::RegionDescriptor> regions{};
  std::uint32_t seen = 0;  ///< descriptors, with those beyond the limit of regions, which are not kept
  Error refused{};         ///< why the first one that was not accepted here was not; ok: all are
};

/// One that is whole, for the program.
struct ArrivedExchange {
  ExchangeStream stream{};
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
