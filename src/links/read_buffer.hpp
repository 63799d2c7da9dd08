// SPDX-License-Identifier: Apache-2.0
//
// ReadBuffer: where a FrameStream keeps bytes that it has read and not yet understood, and the descriptors that came
// with them. Loop-bound.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "runtime/event_port.hpp"

namespace hixl::links {

class ReadBuffer {
 public:
  /// Holds a burst of small frames, and is small enough to be kept for every peer.
  static constexpr std::size_t k_rest_bytes = 16U << 10U;

  ReadBuffer() : storage_(k_rest_bytes) {}

  [[nodiscard]] ConstBytes content() const noexcept { return ConstBytes(storage_).subspan(begin_, end_ - begin_); }
  [[nodiscard]] bool empty() const noexcept { return begin_ == end_; }
  /// The bytes themselves stay where they are until room() or reserve().
  void consume(std::size_t bytes) noexcept {
    HIXL_ASSERT(bytes <= end_ - begin_);
    begin_ += bytes;
  }
  /// Everything that can be filled now; then filled().
  [[nodiscard]] Bytes room() noexcept {
    move_down();
    return Bytes(storage_).subspan(end_);
  }
  void filled(std::size_t bytes) noexcept {
    HIXL_ASSERT(bytes <= storage_.size() - end_);
    end_ += bytes;
  }
  /// Makes content() able to reach `bytes`. Only a body longer than the resting size allocates.
  void reserve(std::size_t bytes) {
    if (bytes <= storage_.size()) return;
    move_down();
    storage_.resize(bytes);
  }
  /// Gives back what reserve() took, once it is empty.
  void relax() {
    if (empty() && storage_.size() > k_rest_bytes) *this = ReadBuffer();
  }

 private:
  void move_down() noexcept {
    if (begin_ == 0) return;
    std::copy_n(storage_.begin() + static_cast<std::ptrdiff_t>(begin_), end_ - begin_, storage_.begin());
    end_ -= begin_;
    begin_ = 0;
  }
  std::vector<std::byte> storage_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// Descriptors that came with bytes, until the frame that they belong to is whole.
///
/// The sender writes a frame with descriptors in a call of its own, and the kernel ends a read behind the piece that
/// carried some. So the frame in which that read ended owns them.
class ReceivedFds {
 public:
  /// Unclaimed descriptors of one stream; what a hostile peer sends beyond is closed at once.
  static constexpr std::size_t k_pending_max = 8;

  /// `fds` came with a read that ended at `offset` of the stream.
  void add(std::uint64_t offset, std::vector<runtime::Fd>& fds) {
    for (runtime::Fd& fd : fds) {
      if (pending_.size() < k_pending_max) pending_.push_back({offset, std::move(fd)});
    }
    fds.clear();
  }
  /// Those of the frame that ends at `offset`.
  [[nodiscard]] std::vector<runtime::Fd> take(std::uint64_t offset) {
    std::vector<runtime::Fd> taken;
    if (pending_.empty()) return taken;
    const auto is_later = [&](const Pending& pending) { return pending.offset > offset; };
    const auto later = std::find_if(pending_.begin(), pending_.end(), is_later);
    for (auto it = pending_.begin(); it != later; ++it) taken.push_back(std::move(it->fd));
    pending_.erase(pending_.begin(), later);
    return taken;
  }

 private:
  struct Pending {
    std::uint64_t offset;
    runtime::Fd fd;
  };
  std::vector<Pending> pending_;
};

}  // namespace hixl::links
