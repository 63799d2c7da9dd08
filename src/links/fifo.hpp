// SPDX-License-Identifier: Apache-2.0
//
// Fifo: a queue of plain values that lie side by side, so that its whole content can be handed on as one span. It
// allocates only when it outgrows itself. Loop-bound.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "base/assert.hpp"

namespace hixl::links {

template <class T>
requires std::is_trivially_copyable_v<T>
class Fifo {
 public:
  /// Starts with room for `initial`. When it runs empty, room for more than `kept_max` is given back.
  struct Room {
    std::size_t initial;
    std::size_t kept_max;
  };
  explicit Fifo(const Room& room) : room_(room), storage_(room.initial) {}

  [[nodiscard]] std::size_t size() const noexcept { return end_ - begin_; }
  [[nodiscard]] bool empty() const noexcept { return begin_ == end_; }
  [[nodiscard]] std::span<const T> items() const noexcept { return std::span(storage_).subspan(begin_, size()); }
  [[nodiscard]] const T& front() const noexcept { return storage_[begin_]; }

  /// Room for `count` more at the end, to be filled at once. Earlier spans are void.
  [[nodiscard]] std::span<T> extend(std::size_t count) {
    if (count > storage_.size() - end_) make_room(count);
    end_ += count;
    return std::span(storage_).subspan(end_ - count, count);
  }
  void push(const T& item) { extend(1)[0] = item; }
  void drop(std::size_t count) {
    HIXL_ASSERT(count <= size());
    begin_ += count;
    if (begin_ != end_) return;
    begin_ = end_ = 0;
    if (storage_.size() > room_.kept_max) storage_ = std::vector<T>(room_.initial);
  }

 private:
  /// Moves the content down only when at least as much was dropped before, which makes a push cost O(1) on average.
  void make_room(std::size_t count) {
    const std::size_t live = size();
    const auto from = storage_.begin() + static_cast<std::ptrdiff_t>(begin_);
    if (live + count <= storage_.size() / 2) {
      std::copy_n(from, live, storage_.begin());
    } else {
      std::vector<T> larger(2 * (live + count));
      std::copy_n(from, live, larger.begin());
      storage_.swap(larger);
    }
    begin_ = 0;
    end_ = live;
  }

  Room room_;
  std::vector<T> storage_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace hixl::links
