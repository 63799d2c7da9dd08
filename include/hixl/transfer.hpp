// SPDX-License-Identifier: Apache-2.0
//
// What a transfer is told: its options, the entries of a batch, the signal behind a put. Plain values.
#pragma once

#include <cstdint>

#include <hixl/request.hpp>
#include <hixl/types.hpp>

namespace hixl {

struct OpOptions {
  Timeout timeout = k_default_timeout;
  Callback callback{};          ///< with a callback the slot frees itself at the end
  std::uint64_t user_data = 0;  ///< handed to the callback
};

/// One entry of a batch. Entries of a batch are not ordered among each other.
struct BatchEntry {
  TransferVerb verb = TransferVerb::put;
  void* local = nullptr;
  RemoteAddress remote{};
  std::uint64_t size = 0;
};

/// An 8-byte word in a remote region that is changed after the bytes of a put are visible there.
struct Signal {
  RemoteAddress word{};  ///< 8-byte aligned
  std::uint64_t value = 1;
  SignalOp op = SignalOp::set;
};

}  // namespace hixl
