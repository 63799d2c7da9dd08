// SPDX-License-Identifier: Apache-2.0
//
// SpscRing: a bounded queue of pointers from one thread to another, without locks or allocation after construction.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <vector>

namespace hixl::memory {

/// One thread pushes, one thread pops; nothing else may be called by others.
template <class T>
class SpscRing {
 public:
  /// Holds at least `capacity` items.
  explicit SpscRing(std::size_t capacity) : items_(std::bit_ceil(capacity)) {}

  /// False when full.
  [[nodiscard]] bool push(T* item) noexcept {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == items_.size()) return false;
    items_[tail & (items_.size() - 1)] = item;
    tail_.store(tail + 1, std::memory_order_release);  // pairs with pop(): the item and what it points to
    return true;
  }
  /// Null when empty.
  [[nodiscard]] T* pop() noexcept {
    const std::size_t head = head_.load(std::memory_order_relaxed);
    if (tail_.load(std::memory_order_acquire) == head) return nullptr;
    T* item = items_[head & (items_.size() - 1)];
    head_.store(head + 1, std::memory_order_release);  // pairs with push(): the place is free
    return item;
  }
  /// For the thread that pops. seq_cst, so that it can be the last look before sleeping.
  [[nodiscard]] bool empty() const noexcept {
    return tail_.load(std::memory_order_seq_cst) == head_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return items_.size(); }

 private:
  std::vector<T*> items_;
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
};

}  // namespace hixl::memory
