// SPDX-License-Identifier: Apache-2.0
//
// The incoming half of a FrameStream, and what lets a sink destroy the stream it is called from. Private to
// frame_stream*.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/assert.hpp"
#include "links/frame_stream.hpp"
#include "links/read_buffer.hpp"
#include "wire/frame.hpp"
#include "wire/payload_sum.hpp"

namespace hixl::links {

/// What has been read, and how far it is understood.
struct FrameStream::In {
  enum class Phase : std::uint8_t { header, body, payload } phase = Phase::header;
  wire::FrameHeader header;
  bool skip = false;  ///< an optional frame of a type that is not known here
  std::uint64_t payload_left = 0;
  wire::PayloadSum payload_sum;    ///< of the bytes so far, when the frame carries one
  wire::PayloadSum::Marks marks;   ///< the sender's; those of this frame
  std::uint64_t parsed_bytes = 0;  ///< offset in the stream
  std::uint64_t read_bytes = 0;    ///< offset in the stream
  std::size_t event_bytes = 0;     ///< read during this event
  std::size_t event_frames = 0;
  bool drained = false;  ///< the last read took less than offered: asking again would be in vain
  ReadBuffer buffer;
  ReceivedFds fds;
  std::vector<runtime::Fd> fds_read;

  void consume(std::size_t bytes) noexcept {
    buffer.consume(bytes);
    parsed_bytes += bytes;
  }
  /// True when a sink that stopped may go on without the socket.
  [[nodiscard]] bool can_progress() const noexcept {
    return !buffer.empty() || (phase == Phase::payload && payload_left == 0);
  }
  [[nodiscard]] bool payload_checked() const noexcept { return (header.flags & wire::k_flag_payload_crc) != 0; }
  /// Of a payload that has come whole: what its checksum says is wrong.
  [[nodiscard]] std::optional<wire::PayloadPiece> wrong_piece() const noexcept {
    if (!payload_checked()) return std::nullopt;
    const std::size_t count = wire::marks_of(header.flags, header.payload_bytes);
    return payload_sum.first_wrong(std::span(marks).first(count), header.payload_crc);
  }
};

/// Lets a sink destroy the stream from inside a call. The buffers then live until that call has returned.
struct FrameStream::Life {
  explicit Life(FrameStream& stream) : stream_(stream) {
    HIXL_ASSERT(stream.life_ == nullptr);
    stream.life_ = this;
  }
  ~Life() {
    if (!gone) stream_.life_ = nullptr;
  }
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;
  bool gone = false;
  std::unique_ptr<In> kept;

 private:
  FrameStream& stream_;
};

}  // namespace hixl::links
