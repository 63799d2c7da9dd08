// SPDX-License-Identifier: Apache-2.0
//
// Transfer: one push or pull under way. It moves in pieces, each straight from registered memory to registered memory.
#pragma once

#include <cstdint>
#include <memory>

#include <hixl/kv/lease.hpp>
#include <hixl/result.hpp>
#include <hixl/types.hpp>

namespace hixl::kv {

struct Progress {
  std::uint64_t bytes_total = 0;
  std::uint64_t bytes_done = 0;  ///< known to be at their place
  std::uint32_t layers_total = 0;
  std::uint32_t layers_done = 0;
};

/// On the loop thread, once, after the end; never from inside the call that began it. When close() has run out of time
/// while the runtime has no room, on a thread of the DataDist's own.
struct TransferCallback {
  void (*function)(void* context, const Result<void>& result, const Progress& progress) = nullptr;
  void* context = nullptr;
};
/// On the loop thread, once a layer (the model's number), when its bytes are at their place and before the end is told.
struct LayerCallback {
  void (*function)(void* context, std::uint32_t layer) = nullptr;
  void* context = nullptr;
};

/// Stands for "this transfer is no part of a sequence".
inline constexpr std::uint64_t k_no_sequence = 0;

struct TransferOptions {
  Timeout timeout = k_default_timeout;  ///< for all of it, counted from the call; default: DataDistOptions
  TransferCallback callback{};
  LayerCallback on_layer{};
  /// The lease under which the other rank's blocks are used. Without: those of a cache that nobody takes back.
  /// Copied. LEASE_ENDED when it is over, before a byte moves.
  const LeaseTicket* ticket = nullptr;
  bool release = false;  ///< with success the lease is given back at once; without a ticket: INVALID_ARGUMENT
  bool layered = false;  ///< a layer moves when ready() has named it, and not before
  /// Names a sequence that grows: only tokens move that this rank has not moved for that sequence between these two
  /// registrations, for these layers and heads, with these blocks; pushed ones count as long as their lease is the
  /// same. 0: all of them move.
  std::uint64_t sequence = k_no_sequence;
};

/// Owner: the program; may be dropped, then it goes on. Thread-safe, but moving and assignment. Completion: ends
/// exactly once, with success when every byte is at its place; else when not one byte of it can move any more: the
/// first error, or CANCELLED. Close: DataDist::close() ends it with STOPPED; what it has ended with is told for ever.
class Transfer {
 public:
  Transfer() = default;  ///< empty: INVALID_REQUEST
  /// The result, or BUSY while it is under way. Never blocks.
  [[nodiscard]] Result<void> query() const;
  /// Waits for the end; k_default_timeout: for as long as the transfer may take. DEADLINE_EXCEEDED here means the wait
  /// ended, and so may STOPPED: close() has begun, and query() tells what becomes of it. WOULD_DEADLOCK on the loop
  /// thread.
  [[nodiscard]] Result<void> wait(Timeout timeout = k_default_timeout) const;
  [[nodiscard]] Progress progress() const;
  /// Of a layered one: this layer's bytes are final here (push) or there (pull). Any order, each once (ALREADY_EXISTS).
  /// OUT_OF_RANGE: no layer of this transfer; INVALID_ARGUMENT: not layered; else what it has ended with. Never blocks.
  [[nodiscard]] Result<void> ready(std::uint32_t layer) const;
  /// It ends soon. After the end: no effect.
  void cancel() const;

  class State;
  explicit Transfer(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

}  // namespace hixl::kv
