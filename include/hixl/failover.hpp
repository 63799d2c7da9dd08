// SPDX-License-Identifier: Apache-2.0
//
// What a program may say about many links as one: which share the work, how often a piece of an operation is tried
// again when one fails, and what then.
#pragma once

#include <chrono>
#include <cstdint>

#include <hixl/error.hpp>
#include <hixl/types.hpp>

namespace hixl {

/// Which links carry new work, of those that stand and reach the memory.
enum class Pooling : std::uint8_t {
  best_kind,  ///< all of the best kind; the others are spares
  all_kinds,  ///< all: for kinds that use different hardware
};

/// Where a piece goes on whose retries are used up.
enum class Degrade : std::uint8_t {
  next_link,  ///< any link that its operation allows, with the count begun anew
  tcp,        ///< the whole operation by tcp alone from now on, the count begun anew; where tcp is not allowed: fail
  fail,       ///< the operation ends with RETRIES_EXHAUSTED, whose details are those of the link's error
};

/// A piece of an operation under which links broke once more than the policy retries.
struct FailedPiece {
  Rank rank = k_no_rank;
  LinkKind kind = LinkKind::tcp;  ///< of the link that broke last
  std::uint16_t link = 0;         ///< as LinkInfo::id
  std::uint32_t attempts = 0;     ///< of this piece, all of them; counted up to 255
  std::uint64_t bytes = 0;        ///< of the piece
  std::uint64_t user_data = 0;    ///< OpOptions::user_data
  Error error{};                  ///< why the link broke
};

/// Asked on the loop thread, as a Callback: keep it short. It must not throw; one that does is taken for `fail` and
/// counted in Counters::callback_errors. Without a function: tcp first, then fail.
struct DegradeHook {
  Degrade (*function)(void* context, const FailedPiece& piece) = nullptr;
  void* context = nullptr;
};

/// A piece (chunk) of an operation whose link broke before the target had executed it goes back to its peer and is
/// tried again, first at once, then after pauses that double, each drawn between nothing and its full length. Pieces
/// that are known to be executed are never sent again, and atomics and signals act once whatever is retried.
struct RetryPolicy {
  std::uint32_t count = 3;                   ///< 0 … 100 tries after the first one, before `degrade` is asked
  std::chrono::milliseconds pause{1};        ///< 0 … 10 000, before the second retry
  std::chrono::milliseconds pause_max{500};  ///< 0 … 60 000: far below the default deadline
  DegradeHook degrade{};
};

}  // namespace hixl
