// SPDX-License-Identifier: Apache-2.0
//
// Sequence: readers of a table take no lock; they read while the writer's counter is even and unchanged, else again.
// Cells: the words that such a table is made of.
//
// There are no fences (ThreadSanitizer does not model them). Every cell is loaded with acquire and stored with release:
// a reader that sees one cell of an unfinished write therefore also sees the odd counter that was stored before it.
// On x86-64 both are plain moves.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace hixl::memory {

/// One word that a writer changes while readers look. All-zero bytes are a valid cell of value 0.
template <class T>
class Cell {
 public:
  Cell() = default;
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell& other) noexcept {
    store(other.load());
    return *this;
  }
  [[nodiscard]] T load() const noexcept { return word_.load(std::memory_order_acquire); }
  void store(T value) noexcept { word_.store(value, std::memory_order_release); }

 private:
  std::atomic<T> word_{};
  static_assert(std::atomic<T>::is_always_lock_free);
};

/// One writer at a time; readers on any thread. What a reader computes from torn cells is thrown away, so it must only
/// be memory-safe and finite: each cell always holds a value that is in range by itself.
class Sequence {
 public:
  template <class Change>
  void write(Change&& change) noexcept {
    const std::uint64_t before = counter_.load(std::memory_order_relaxed);
    counter_.store(before + 1, std::memory_order_relaxed);  // pairs with the cells: released with the first of them
    change();
    counter_.store(before + 2, std::memory_order_release);  // pairs with the first load of read()
  }

  template <class Look>
  [[nodiscard]] auto read(Look&& look) const noexcept {
    for (std::uint32_t turns = 0;; ++turns) {
      const std::uint64_t before = counter_.load(std::memory_order_acquire);
      if ((before & 1U) == 0) {
        auto seen = look();
        if (counter_.load(std::memory_order_relaxed) == before) return seen;
      }
      // A write takes microseconds, unless the writer lost its core in the middle; then it needs ours.
      if (turns >= k_turns_before_yield) std::this_thread::yield();
    }
  }

 private:
  static constexpr std::uint32_t k_turns_before_yield = 64;  // some microseconds: the length of a long write
  std::atomic<std::uint64_t> counter_{0};                    // odd while a write is under way
};

}  // namespace hixl::memory
