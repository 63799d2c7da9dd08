// SPDX-License-Identifier: Apache-2.0
//
// A slot of the request table and the parts of its word. For request_table.cpp, which says how the word changes, and
// request_promise.cpp.
#pragma once

#include "runtime/request_table.hpp"

namespace hixl::runtime {

using Word = std::uint64_t;

inline constexpr Word k_pending = 1;     // under way; neither pending nor taken: ended
inline constexpr Word k_taken = 2;       // free, or about to be
inline constexpr Word k_failed = 4;      // the slot's error is the result
inline constexpr Word k_seen = 8;        // a callback or a queue has had the result
inline constexpr Word k_waited = 16;     // somebody sleeps on the slot
inline constexpr Word k_retired = 32;    // the references are counted as strays
inline constexpr Word k_cancelled = 64;  // the loop was, or is being, asked to end it
inline constexpr Word k_callback = 128;  // the one callback of this life
inline constexpr Word k_writing = 256;   // which somebody is just writing
inline constexpr Word k_looked = 512;    // somebody has looked at the end meanwhile
inline constexpr Word k_one_reference = Word{1} << 10U;
inline constexpr Word k_references = 0xfffffc00U;
inline constexpr std::uint32_t k_generation_shift = 32;

[[nodiscard]] inline std::uint32_t generation(Word word) noexcept {
  return static_cast<std::uint32_t>(word >> k_generation_shift);
}
[[nodiscard]] inline std::int64_t references(Word word) noexcept {
  return static_cast<std::int64_t>((word & k_references) / k_one_reference);
}

/// A success touches the first cache line only.
struct alignas(64) RequestTable::Slot {
  std::atomic<Word> state{k_taken};
  FutexWord ends{0};                   // ends that had waiters, over all lives
  std::atomic<std::uint32_t> next{0};  // in the free list
  std::uint64_t user_data = 0;         // the poster's, who shares it with the loop by handing over
  Effect effect{};                     // as the error: written by finish()
  Callback callback{};                 // written before k_callback without k_writing is seen
  Error error{};
};

}  // namespace hixl::runtime
