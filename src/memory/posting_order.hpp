// SPDX-License-Identifier: Apache-2.0
//
// PostingOrder: what was posted to one rank before and after its fences and flushes, whichever threads posted it.
//
// Mail is FIFO per sender only, so the order in which it arrives says nothing about two threads of which one waited for
// the other. Fences and flushes are therefore numbered, and every transfer carries the number of those that had begun
// when it was posted: a look at a line that is written rarely, not at one that every post writes.
#pragma once

#include <atomic>
#include <cstdint>

namespace hixl::memory {

class PostingOrder {
 public:
  /// Any thread. The place of a transfer that is posted now: behind all fences that have begun, before all others.
  [[nodiscard]] std::uint64_t place_of_transfer() const noexcept { return 2 * begun_.load(std::memory_order_acquire); }
  /// Any thread. Begins a fence or flush and gives its place. sent() must follow, once its mail is sent or given up.
  [[nodiscard]] std::uint64_t begin() noexcept { return 2 * begun_.fetch_add(1, std::memory_order_acq_rel) + 1; }
  void sent() noexcept { sent_.fetch_add(1, std::memory_order_release); }
  /// Loop. How many have begun, if the mail of each of them is on its way; else `known`. What was counted as sent was
  /// counted as begun before, so equal numbers mean that nobody was in between when the first was read.
  [[nodiscard]] std::uint64_t all_sent(std::uint64_t known) const noexcept {
    const std::uint64_t sent = sent_.load(std::memory_order_acquire);
    return begun_.load(std::memory_order_acquire) == sent ? sent : known;
  }

 private:
  alignas(64) std::atomic<std::uint64_t> begun_{0};
  std::atomic<std::uint64_t> sent_{0};
};

}  // namespace hixl::memory
