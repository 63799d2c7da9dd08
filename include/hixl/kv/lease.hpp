// SPDX-License-Identifier: Apache-2.0
//
// Leases: blocks of this rank that one other rank may use for some time. They free themselves: when the other rank says
// that it is done, when the time is over, when it dies, or when the owner wants them back; but never while a transfer
// of that rank is still under way in them.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include <hixl/error.hpp>
#include <hixl/kv/cache.hpp>
#include <hixl/types.hpp>

namespace hixl::kv {

enum class Access : std::uint8_t {
  pull = 1,  ///< the holder may read
  push = 2,  ///< the holder may write
};

enum class LeaseState : std::uint8_t {
  open,
  ending,  ///< no transfer begins in it any more; one is still under way
  ended,   ///< the blocks are the owner's again; so is a lease that was forgotten since
};
enum class LeaseEnd : std::uint8_t {
  none,          ///< has not ended
  released,      ///< by its holder
  expired,       ///< its time was over
  taken_back,    ///< by end_lease()
  peer_lost,     ///< the holder's life is over, or the session with it
  unlinked,      ///< one of the two has unlinked
  unregistered,  ///< the cache, or the whole DataDist was closed
};

struct LeaseId {
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;  ///< 0: names nothing; never the same again on this rank, and rising
  friend bool operator==(const LeaseId&, const LeaseId&) = default;
};

/// Told once, on the loop thread, when no byte of the blocks can be read or written by the holder any more. `blocks`
/// are those of the grant, valid during the call. Keep it short, as every callback.
struct LeaseHook {
  void (*function)(void* context, LeaseId lease, LeaseEnd end, BlockTable blocks) = nullptr;
  void* context = nullptr;
};

inline constexpr std::chrono::milliseconds k_lease_time_max = std::chrono::hours(24);

struct LeaseOptions {
  Rank holder = k_no_rank;  ///< linked
  Access access = Access::pull;
  BlockTable blocks{};                     ///< each once, all in the cache; copied. At least one
  std::chrono::milliseconds time{30'000};  ///< 1 ms … 24 h; 30 s is far beyond a transfer, and soon enough for a leak
  /// With push: each layer's arrival can be waited for. Costs one of DataDistOptions::arrivals_max.
  bool layer_arrivals = false;
  LeaseHook on_end{};
};

/// What the holder shows with its transfers. Plain bytes, to be sent to the holder by whatever the program speaks with
/// it. Means something only to that rank, as long as the owner's DataDist lives.
struct LeaseTicket {
  Rank owner = k_no_rank;
  Rank holder = k_no_rank;
  std::uint64_t incarnation = 0;  ///< the owner's life
  RegionKey directory{};          ///< and which DataDist of it
  CacheKey key{};
  std::uint64_t version = 0;  ///< of the cache
  LeaseId lease{};
  std::uint32_t gate = 0;
  std::uint32_t gate_generation = 0;
  std::uint32_t arrival = 0;  ///< 0: none, else place + 1
  std::uint32_t blocks = 0;   ///< how many
  Access access = Access::pull;
};

struct Lease {
  LeaseId id{};
  LeaseTicket ticket{};
};

}  // namespace hixl::kv
