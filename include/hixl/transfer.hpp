// SPDX-License-Identifier: Apache-2.0
//
// What a transfer is told: its options, the entries of a batch, pieces, strides, the signal behind a put. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hixl/request.hpp>
#include <hixl/types.hpp>

namespace hixl {

class CompletionQueue;

struct OpOptions {
  /// 0: nothing is moved, it ends with DEADLINE_EXCEEDED. Other negative times than k_default_timeout:
  /// INVALID_ARGUMENT.
  Timeout timeout = k_default_timeout;
  Callback callback{};               ///< with a callback the slot frees itself at the end
  std::uint64_t user_data = 0;       ///< handed to the callback and the queue
  CompletionQueue* queue = nullptr;  ///< the end is put there too; BUSY when all its places are taken
  /// Kinds that this operation may take. TRANSPORT_UNAVAILABLE when none of them is in use here, or when it is known
  /// that none reaches the rank.
  LinkSet links{};
};

/// Entries of one batch; a larger one is INVALID_ARGUMENT. Each costs about 100 bytes until the batch has ended.
inline constexpr std::size_t k_batch_entries_max = std::size_t{1} << 20U;

/// One entry of a batch. Entries are carried out in any order, but where two puts of a batch overlap at the target, or
/// two gets here, the bytes of the later entry stand at the end. A put and a get that overlap leave any mix.
struct BatchEntry {
  TransferVerb verb = TransferVerb::put;
  void* local = nullptr;
  RemoteAddress remote{};
  std::uint64_t size = 0;
};

/// A piece of local memory: a source of put_gathered, a sink of get_scattered.
struct LocalPiece {
  void* data = nullptr;
  std::uint64_t size = 0;
};

/// Equal blocks at equal distances on both sides, as a column of a matrix. Distances go from the start of a block to
/// the start of the next and are at least `block_bytes`. Without blocks, or with blocks of no bytes, nothing moves.
struct Strided {
  void* local = nullptr;
  std::uint64_t local_stride = 0;  ///< bytes
  RemoteAddress remote{};
  std::uint64_t remote_stride = 0;  ///< bytes
  std::uint64_t block_bytes = 0;
  std::uint64_t blocks = 0;
};

/// An 8-byte word in a remote region that is changed after the bytes of a put are visible there.
struct Signal {
  RemoteAddress word{};  ///< 8-byte aligned
  std::uint64_t value = 1;
  SignalOp op = SignalOp::set;
};

}  // namespace hixl
