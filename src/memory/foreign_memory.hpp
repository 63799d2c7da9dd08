// SPDX-License-Identifier: Apache-2.0
//
// ForeignMemory: the memory of another process on this host, read and written by the kernel on our behalf (cross-memory
// attach). It needs no mapping, so it reaches whatever that process has mapped; it can be neither stopped nor taken
// back while a call is under way, so calls are short, and every one stands under an announcement of a lane (lane.hpp).
// Bytes may appear in any order: never for signals or atomics.
//
// The kernel takes a pid, which may be another process' by the time of the call. So the pidfd is looked at before and
// after each call, and a call counts only if the process still lives. (An exec keeps pid and pidfd: who replaces its
// program must have stopped its runtime before.)
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/device.hpp"

namespace hixl::memory {

/// Most bytes of one move(): a revocation waits for it, some 150 µs.
inline constexpr std::size_t k_foreign_bytes_max = 1U << 20U;

/// A run of bytes here and its place in the other process.
struct ForeignSegment {
  std::byte* local = nullptr;
  std::uint64_t address = 0;  ///< never dereferenced here
  std::uint32_t bytes = 0;
};

/// Whether the process that a pidfd means has ended; false for -1.
[[nodiscard]] bool process_ended(int pidfd) noexcept;

/// Thread-safe: has no state but its two numbers. The descriptor stays the owner's and open.
class ForeignMemory {
 public:
  enum class Direction : std::uint8_t { to_peer, from_peer };
  enum class Outcome : std::uint8_t {
    done,
    ended,           ///< the process has ended: nothing counts
    unmapped_there,  ///< `address` at the peer is not mapped, or not writable for a write
    unmapped_here,   ///< `address` is not mapped in this process
    refused,         ///< the system does not allow it: `os_error`
  };
  struct Moved {
    Outcome outcome = Outcome::done;
    std::int32_t os_error = 0;
    std::uint64_t address = 0;  ///< the first byte that did not move
  };

  ForeignMemory(pid_t pid, int pidfd) noexcept : pid_(pid), pidfd_(pidfd) {}
  /// At most wire::k_segments_max segments and k_foreign_bytes_max bytes. Parts may have moved whatever the outcome.
  [[nodiscard]] Moved move(Direction direction, Device& local, std::span<const ForeignSegment> segments) const noexcept;

 private:
  [[nodiscard]] Moved move_host(Direction direction, std::span<const ForeignSegment> segments) const noexcept;
  [[nodiscard]] Moved move_bounced(Direction direction, Device& local, const ForeignSegment& segment) const noexcept;
  [[nodiscard]] Moved failure(Direction direction, int os_error, void* here, void* there) const noexcept;

  pid_t pid_;
  int pidfd_;
};

}  // namespace hixl::memory
