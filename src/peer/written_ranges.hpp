// SPDX-License-Identifier: Apache-2.0
//
// WrittenRanges: which bytes of an operation are known to be at their place. Chunks end in nearly their order, so a few
// ranges hold them; when they do not, the shortest is forgotten, which is then not known rather than wrong.
//
// Loop-bound. Plain data of an operation; allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <hixl/request.hpp>

namespace hixl::peer {

class WrittenRanges {
 public:
  void add(std::uint64_t begin, std::uint64_t end) noexcept {
    if (begin == end) return;
    // What it meets becomes part of it.
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const ByteRange range = ranges_[i];
      if (range.end < begin || range.begin > end) {
        ranges_[kept++] = range;
        continue;
      }
      begin = std::min(begin, range.begin);
      end = std::max(end, range.end);
    }
    count_ = kept;
    std::size_t place = count_;
    while (place > 0 && ranges_[place - 1].begin > begin) --place;
    std::move_backward(ranges_.begin() + static_cast<std::ptrdiff_t>(place),
                       ranges_.begin() + static_cast<std::ptrdiff_t>(count_),
                       ranges_.begin() + static_cast<std::ptrdiff_t>(count_ + 1));
    ranges_[place] = {begin, end};
    count_ += 1;
    if (count_ > k_written_ranges) forget_shortest();
  }
  /// Ascending, apart from each other; those that are not used are empty.
  [[nodiscard]] std::array<ByteRange, k_written_ranges> list() const noexcept {
    std::array<ByteRange, k_written_ranges> all{};
    std::copy_n(ranges_.begin(), count_, all.begin());
    return all;
  }

 private:
  void forget_shortest() noexcept {
    const auto last = ranges_.begin() + static_cast<std::ptrdiff_t>(count_);
    const auto shortest = std::min_element(ranges_.begin(), last, [](const ByteRange& a, const ByteRange& b) {
      return a.end - a.begin < b.end - b.begin;
    });
    std::move(shortest + 1, last, shortest);
    count_ -= 1;
  }

  std::array<ByteRange, k_written_ranges + 1> ranges_{};
  std::size_t count_ = 0;
};

}  // namespace hixl::peer
