// SPDX-License-Identifier: Apache-2.0
//
// StoreServer: the built-in rendezvous store, an actor on any loop (rank 0's, a launcher's, the simulator's).
// A claim lasts as long as its connection; another life of a rank replaces one whose connection has ended: at once if
// it was born later, else when the one before has not come again in half a second. A live one is a RANK_CONFLICT, and
// so is the claim of a life that began earlier on the same host than one that has not left. Each life gets a birth
// above those of all lives of its rank that the store has known; a life that tells the birth which it has keeps it,
// unless a newer one had the rank meanwhile. Bounded: clients, half-open handshakes, bytes queued a client (a reader
// that never reads is dropped).
#pragma once

#include <cstdint>
#include <memory>

#include <hixl/result.hpp>

#include "runtime/loop.hpp"

namespace hixl::group {

/// What a store has seen since it began to listen, and holds now.
struct StoreCounters {
  std::uint64_t members = 0;    ///< ranks held now
  std::uint64_t half_open = 0;  ///< connections without a claim now
  std::uint64_t malformed = 0;  ///< connections dropped because of what they sent
  std::uint64_t idle = 0;       ///< connections dropped because they claimed nothing in time, or were crowded out
  std::uint64_t slow = 0;       ///< connections dropped because they did not read
  std::uint64_t conflicts = 0;  ///< claims refused because a live connection holds the rank
  std::uint64_t replaced = 0;   ///< connections that lost their rank to a newer one
};

/// Loop-bound. Destruction closes listener and connections at once.
class StoreServer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<StoreServer>> listen(runtime::Loop& loop,
                                                                   const runtime::Address& address);
  ~StoreServer();
  [[nodiscard]] const runtime::Address& address() const noexcept;
  [[nodiscard]] StoreCounters counters() const noexcept;

 private:
  StoreServer() = default;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hixl::group
