// SPDX-License-Identifier: Apache-2.0
//
// FrameQueue: the outgoing half of a FrameStream. Headers and bodies are copied in, payload is referenced; many frames
// leave in one gathered write. Does no I/O itself. Loop-bound.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "links/fifo.hpp"
#include "runtime/event_port.hpp"
#include "wire/frame.hpp"

namespace hixl::links {

class FrameQueue {
 public:
  struct Frame {
    ConstBytes body;
    std::span<const iovec> pieces;
    std::uint64_t ticket = 0;  ///< 0: nobody wants to know
    std::span<const int> fds;
  };
  FrameQueue();

  /// Fills in lengths and checksums of the header, and adds the marks of a payload with checksum to the body. The
  /// descriptors are duplicated; FD_LIMIT with none queued.
  [[nodiscard]] Result<void> push(wire::FrameHeader header, const Frame& frame);
  /// Header and body bytes of the frames that have not wholly left.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_.size(); }
  [[nodiscard]] bool empty() const noexcept { return records_.empty(); }
  /// True when a frame with this ticket has not wholly left.
  [[nodiscard]] bool holds_ticket(std::uint64_t ticket) const noexcept;

  /// What the next write offers. A frame with descriptors starts a write and goes alone in it, which lets the reader
  /// know whose they are.
  struct Gathered {
    std::size_t pieces = 0;
    std::size_t bytes = 0;
    std::span<const int> fds;
  };
  [[nodiscard]] Gathered gather(std::span<iovec> out) const noexcept;
  /// `bytes` of what gather() gave have left.
  void advance(std::size_t bytes);
  /// Takes the next ticket whose frame has wholly left; 0: none.
  [[nodiscard]] std::uint64_t take_sent() noexcept;
  [[nodiscard]] bool any_sent() const noexcept { return !sent_.empty(); }

 private:
  struct Record {
    std::uint64_t ticket;
    std::uint32_t head_bytes;  ///< header and body
    std::uint32_t payload_bytes;
    std::uint32_t pieces;
    std::uint32_t fds;
    [[nodiscard]] std::size_t bytes() const noexcept { return std::size_t{head_bytes} + payload_bytes; }
  };
  Fifo<std::byte> bytes_;
  Fifo<iovec> pieces_;
  Fifo<Record> records_;
  Fifo<std::uint64_t> sent_;
  std::vector<int> fds_;  ///< of the queued frames in order; owned
  std::vector<runtime::Fd> owned_fds_;
  std::size_t front_written_ = 0;  ///< bytes of the first record that have left
};

}  // namespace hixl::links
