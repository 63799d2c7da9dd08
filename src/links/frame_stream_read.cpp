// SPDX-License-Identifier: Apache-2.0
//
// The incoming half of a FrameStream: a state machine over the bytes at hand. Every step asks the sink before it
// touches payload memory, and stops where it is when the sink has destroyed the stream, left it or wants no more.
#include <algorithm>
#include <array>

#include "links/frame_stream.hpp"
#include "base/planted.hpp"
#include "links/frame_stream_input.hpp"
#include "memory/device.hpp"

namespace hixl::links {
namespace {

// One event reads at most so much, which keeps a turn bounded: the largest frame, about a millisecond of copying.
constexpr std::size_t k_read_bytes_per_event = 4U << 20U;
constexpr std::size_t k_frames_per_event = 64;

std::size_t total_bytes(std::span<const iovec> pieces) {
  std::size_t total = 0;
  for (const iovec& piece : pieces) total += piece.iov_len;
  return total;
}

/// Calls `use(address, bytes)` for the first `bytes` bytes of the pieces; gives how many pieces that were.
template <class Use>
std::size_t for_each_piece(std::span<const iovec> pieces, std::size_t bytes, Use&& use) {
  std::size_t count = 0;
  for (const iovec& piece : pieces) {
    if (bytes == 0) break;
    const std::size_t part = std::min(bytes, piece.iov_len);
    use(static_cast<std::byte*>(piece.iov_base), part);
    bytes -= part;
    ++count;
  }
  return count;
}

}  // namespace

/// `stopped`: the sink has destroyed the stream, replaced itself or does not want to read on.
template <class Call>
FrameStream::Step FrameStream::tell(Call&& call) {
  const Life* const life = life_;
  FrameSink* const sink = sink_;
  call(*sink);
  return !life->gone && alive_ && sink_ == sink && wants_read_ ? Step::progressed : Step::stopped;
}

void FrameStream::pump() {
  if (!alive_ || !wants_read_ || sink_ == nullptr) return;
  in_->event_bytes = 0;
  in_->event_frames = 0;
  in_->drained = false;
  for (;;) {
    Step step = parse();
    if (step == Step::need_bytes) step = in_->drained ? Step::stopped : read_more();
    if (step == Step::stopped) break;
    if (in_->event_bytes >= k_read_bytes_per_event || in_->event_frames >= k_frames_per_event) {
      // The socket reports again by itself what it holds, the buffer does not.
      if (!in_->buffer.empty()) {
        pump_due_ = true;
        loop_.defer(*this);
      }
      break;
    }
  }
}

FrameStream::Step FrameStream::parse() {
  switch (in_->phase) {
    case In::Phase::header:
      return parse_header();
    case In::Phase::body:
      return parse_body();
    case In::Phase::payload:
      return take_payload();
  }
  return Step::stopped;
}

FrameStream::Step FrameStream::parse_header() {
  const ConstBytes content = in_->buffer.content();
  if (content.size() < wire::k_header_bytes) {
    in_->buffer.relax();
    return Step::need_bytes;
  }
  const Result<wire::FrameHeader> header = wire::decode_header(content.first<wire::k_header_bytes>());
  if (!header) {
    fail(header.error());
    return Step::stopped;
  }
  in_->consume(wire::k_header_bytes);
  in_->header = *header;
  in_->skip = !wire::known(header->type);
  in_->phase = In::Phase::body;
  return Step::progressed;
}

FrameStream::Step FrameStream::parse_body() {
  const wire::FrameHeader& header = in_->header;
  if (in_->buffer.content().size() < header.body_bytes) {
    in_->buffer.reserve(header.body_bytes);
    return Step::need_bytes;
  }
  const ConstBytes body = in_->buffer.content().first(header.body_bytes);
  if (wire::crc32c(body) != header.body_crc && !HIXL_PLANTED(body_crc_unchecked)) {
    fail(Error(ErrorCode::corrupt, {.length = header.body_bytes}));
    return Step::stopped;
  }
  in_->consume(header.body_bytes);
  const std::size_t mark_bytes = wire::marks_of(header.flags, header.payload_bytes) * wire::k_mark_bytes;
  if (body.size() < mark_bytes) {
    fail(Error(ErrorCode::malformed_frame, {.length = body.size(), .limit = mark_bytes}));
    return Step::stopped;
  }
  if (header.payload_bytes == 0) {
    in_->phase = In::Phase::header;
    ++in_->event_frames;
    std::vector<runtime::Fd> fds = in_->fds.take(in_->parsed_bytes);
    if (in_->skip) return Step::progressed;
    return tell([&](FrameSink& sink) { sink.on_frame(header, body, fds); });
  }
  in_->phase = In::Phase::payload;
  in_->payload_left = header.payload_bytes;
  in_->payload_sum.clear();
  ByteReader marks(body.last(mark_bytes));
  for (std::size_t i = 0; i < mark_bytes / wire::k_mark_bytes; ++i) in_->marks[i] = marks.get<std::uint32_t>();
  if (in_->skip) return Step::progressed;
  return tell([&](FrameSink& sink) { sink.on_payload_start(header, body.first(body.size() - mark_bytes)); });
}

FrameStream::Step FrameStream::take_payload() {
  if (in_->payload_left == 0) return end_payload();
  const std::size_t available = std::min<std::uint64_t>(in_->buffer.content().size(), in_->payload_left);
  if (available == 0) return Step::need_bytes;
  std::size_t taken = available;
  if (!in_->skip) {
    std::array<iovec, wire::k_segments_max> target;
    std::size_t count = 0;
    if (tell([&](FrameSink& sink) { count = sink.payload_target(in_->payload_left, target); }) == Step::stopped) {
      return Step::stopped;
    }
    const std::span<const iovec> pieces = std::span(target).first(count);
    if (count != 0) taken = std::min(available, total_bytes(pieces));
    HIXL_ASSERT(taken != 0);
    const std::byte* source = in_->buffer.content().data();
    buffered_pieces_ += for_each_piece(pieces, taken, [&](std::byte* to, std::size_t bytes) {
      memory::copy(memory::host_device(), to, memory::host_device(), source, bytes);
      source += bytes;
    });
  }
  if (in_->payload_checked()) in_->payload_sum.add(in_->buffer.content().first(taken));
  in_->buffer.consume(taken);
  return took(taken);
}

FrameStream::Step FrameStream::took(std::size_t payload_bytes) {
  in_->parsed_bytes += payload_bytes;
  in_->payload_left -= payload_bytes;
  if (!in_->skip) {
    const Step step = tell([&](FrameSink& sink) { sink.on_payload_bytes(payload_bytes); });
    if (step == Step::stopped) return step;
  }
  return in_->payload_left == 0 ? end_payload() : Step::progressed;
}

FrameStream::Step FrameStream::end_payload() {
  in_->phase = In::Phase::header;
  ++in_->event_frames;
  static_cast<void>(in_->fds.take(in_->parsed_bytes));
  const std::optional<wire::PayloadPiece> wrong = in_->wrong_piece();
  if (!wrong) return in_->skip ? Step::progressed : tell([](FrameSink& sink) { sink.on_payload_end(); });
  const Life* const life = life_;
  bool dealt_with = false;
  Step step = Step::stopped;
  if (!in_->skip) step = tell([&](FrameSink& sink) { dealt_with = sink.on_payload_corrupt(*wrong); });
  if (dealt_with) return step;
  if (!life->gone) fail(Error(ErrorCode::corrupt, {.length = in_->header.payload_bytes}));
  return Step::stopped;
}

/// One system call: payload to where it belongs, and whatever follows it into the buffer.
FrameStream::Step FrameStream::read_more() {
  std::array<iovec, wire::k_segments_max + 1> pieces;
  std::size_t count = 0;
  if (in_->phase == In::Phase::payload && !in_->skip) {
    const auto target = std::span(pieces).first<wire::k_segments_max>();
    if (tell([&](FrameSink& sink) { count = sink.payload_target(in_->payload_left, target); }) == Step::stopped) {
      return Step::stopped;
    }
  }
  const std::size_t direct_max = total_bytes(std::span(pieces).first(count));
  HIXL_ASSERT(direct_max <= in_->payload_left);
  std::size_t offered = direct_max;
  if (direct_max == 0 || direct_max == in_->payload_left) {
    const Bytes room = in_->buffer.room();
    HIXL_ASSERT(!room.empty());
    pieces[count++] = {room.data(), room.size()};
    offered += room.size();
  }

  const runtime::IoResult result = stream_->read(std::span(pieces).first(count), &in_->fds_read);
  switch (result.state) {
    case runtime::IoResult::State::ok:
      break;
    case runtime::IoResult::State::would_block:
      return Step::stopped;
    case runtime::IoResult::State::closed: {
      const bool between_frames = in_->phase == In::Phase::header && in_->buffer.empty();
      fail(Error(between_frames ? ErrorCode::link_failed : ErrorCode::truncated_frame));
      return Step::stopped;
    }
    case runtime::IoResult::State::failed:
      fail(Error(ErrorCode::link_failed, {.os_error = result.os_error}));
      return Step::stopped;
  }
  in_->event_bytes += result.bytes;
  in_->read_bytes += result.bytes;
  in_->drained = result.bytes < offered;
  if (!in_->fds_read.empty()) in_->fds.add(in_->read_bytes, in_->fds_read);
  const std::size_t direct = std::min(result.bytes, direct_max);
  in_->buffer.filled(result.bytes - direct);
  if (direct == 0) return Step::progressed;
  if (in_->payload_checked()) {
    for_each_piece(pieces, direct, [&](const std::byte* at, std::size_t bytes) { in_->payload_sum.add({at, bytes}); });
  }
  return took(direct);
}

}  // namespace hixl::links
