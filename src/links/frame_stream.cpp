// SPDX-License-Identifier: Apache-2.0
//
// The life of a FrameStream and its outgoing half; frame_stream_read.cpp has the incoming one.
#include "links/frame_stream.hpp"

#include <algorithm>
#include <utility>

#include "links/frame_stream_input.hpp"

namespace hixl::links {
namespace {

// One event writes at most so much, which keeps a turn bounded; a socket buffer rarely takes more.
constexpr std::size_t k_write_bytes_per_event = 8U << 20U;
// Pieces of one write, half of Linux's IOV_MAX: 256 frames of header and payload, in 8 KiB of stack.
constexpr std::size_t k_write_pieces_max = 512;
// A peer within its limits has at most 1 024 frames unanswered; the longest answer to one of them, the head of
// read_data with the marks of 4 MiB, has 324 bytes. Half as much again leaves room for the pongs.
constexpr std::size_t k_answer_reserve_bytes = 512U << 10U;

}  // namespace

FrameStream::FrameStream(std::unique_ptr<runtime::Stream> stream, runtime::Loop& loop, std::size_t bytes_queued_max)
    : stream_(std::move(stream)), loop_(loop), bytes_queued_max_(bytes_queued_max), in_(std::make_unique<In>()) {
  stream_->want_read(false);
  stream_->set_events(this);
}

FrameStream::~FrameStream() {
  if (life_ == nullptr) return;
  life_->gone = true;
  life_->kept = std::move(in_);
}

void FrameStream::set_sink(FrameSink* sink) {
  sink_ = sink;
  resume();
}

void FrameStream::want_read(bool on) {
  wants_read_ = on;
  resume();
}

void FrameStream::resume() {
  const bool reading = alive_ && wants_read_ && sink_ != nullptr;
  if (alive_) stream_->want_read(reading);
  if (reading && in_->can_progress()) pump_due_ = true;
  if (sink_ != nullptr) loop_.defer(*this);
}

// ---- outgoing ----

bool FrameStream::fits(std::size_t body_bytes, std::size_t bytes_max) {
  const std::size_t bytes = wire::k_header_bytes + body_bytes;
  if (out_.empty() || out_.bytes() + bytes <= bytes_max) return true;
  wanted_bytes_ = std::max(wanted_bytes_, bytes);
  return false;
}

/// Half empty, so that whoever waited does not wait again after one frame.
bool FrameStream::sendable_again() const noexcept {
  if (!writable() || wanted_bytes_ == 0) return false;
  return out_.empty() || (out_.bytes() <= bytes_queued_max_ / 2 && out_.bytes() + wanted_bytes_ <= bytes_queued_max_);
}

bool FrameStream::queue(const wire::FrameHeader& header, const FrameQueue::Frame& frame, std::size_t bytes_max) {
  if (!writable()) return true;
  std::size_t body_bytes = frame.body.size();
  if ((header.flags & wire::k_flag_payload_crc) != 0) {
    std::size_t payload_bytes = 0;
    for (const iovec& piece : frame.pieces) payload_bytes += piece.iov_len;
    body_bytes += wire::marks_of(header.flags, payload_bytes) * wire::k_mark_bytes;
  }
  if (!fits(body_bytes, bytes_max)) return false;
  if (const Result<void> pushed = out_.push(header, frame); !pushed) fail(pushed.error());
  loop_.defer(*this);
  return true;
}

bool FrameStream::send(const wire::FrameHeader& header, ConstBytes body, std::span<const int> fds) {
  return queue(header, {.body = body, .pieces = {}, .ticket = 0, .fds = fds}, bytes_queued_max_);
}

bool FrameStream::send(const wire::FrameHeader& header, ConstBytes body, std::span<const iovec> pieces,
                       std::uint64_t ticket) {
  return queue(header, {.body = body, .pieces = pieces, .ticket = ticket, .fds = {}}, bytes_queued_max_);
}

bool FrameStream::send_answer(const wire::FrameHeader& header, ConstBytes body, std::span<const iovec> pieces,
                              std::uint64_t ticket) {
  return queue(header, {.body = body, .pieces = pieces, .ticket = ticket, .fds = {}},
               bytes_queued_max_ + k_answer_reserve_bytes);
}

bool FrameStream::room_for(std::size_t body_bytes) { return !writable() || fits(body_bytes, bytes_queued_max_); }

void FrameStream::call_when_sendable(runtime::Task& task) {
  wanted_bytes_ = std::max(wanted_bytes_, wire::k_header_bytes);
  if (!task.linked()) waiting_.push_back(task);
}

void FrameStream::flush() {
  write_out();
  if (out_.any_sent() || sendable_again()) loop_.defer(*this);
}

void FrameStream::write_out() {
  std::size_t event_bytes = 0;
  while (writable() && !write_blocked_ && !out_.empty()) {
    if (event_bytes >= k_write_bytes_per_event) {
      loop_.defer(*this);
      return;
    }
    std::array<iovec, k_write_pieces_max> pieces;
    const FrameQueue::Gathered offered = out_.gather(pieces);
    const runtime::IoResult result = stream_->write(std::span(pieces).first(offered.pieces), offered.fds);
    ++send_calls_;
    switch (result.state) {
      case runtime::IoResult::State::ok:
        HIXL_ASSERT(result.bytes <= offered.bytes);
        out_.advance(result.bytes);
        event_bytes += result.bytes;
        write_blocked_ = result.bytes < offered.bytes;
        break;
      case runtime::IoResult::State::would_block:
        write_blocked_ = true;
        break;
      case runtime::IoResult::State::closed:
      case runtime::IoResult::State::failed:
        on_write_failed(Error(ErrorCode::link_failed, {.os_error = result.os_error}));
        break;
    }
  }
}

/// What the peer said before it left (that it goes, or why it cannot be our peer) may still wait to be read: the end
/// comes after one more look. One only, since a peer may stop reading and send for ever.
void FrameStream::on_write_failed(const Error& error) {
  if (!wants_read_ || sink_ == nullptr) return fail(error);
  write_error_ = error;
  pump_due_ = true;
  loop_.defer(*this);
}

void FrameStream::on_writable() {
  Life life(*this);
  write_blocked_ = false;
  write_out();
  report();
}

// ---- the task, and what it tells ----

void FrameStream::run() {
  Life life(*this);
  if (pump_due_) {
    pump_due_ = false;
    const bool last = write_error_.has_value();
    pump();
    if (life.gone) return;
    if (last) fail(*write_error_);
  }
  write_out();
  report();
}

void FrameStream::report() {
  const Life* const life = life_;
  while (!life->gone && sink_ != nullptr) {
    if (const std::uint64_t ticket = out_.take_sent(); ticket != 0) {
      sink_->on_sent(ticket);
    } else if (!alive_ && !down_told_) {
      down_told_ = true;
      const Error error = down_error_;  // the sink may destroy us and go on reading it
      sink_->on_down(error);
    } else if (sendable_again()) {
      wanted_bytes_ = 0;
      while (runtime::Task* const task = waiting_.pop_front()) loop_.defer(*task);
      sink_->on_sendable();
    } else {
      return;
    }
  }
}

void FrameStream::fail(const Error& error) {
  if (!alive_) return;
  alive_ = false;
  // The read that follows a failed write finds the same end, and knows less about it.
  down_error_ = write_error_ && error.code == ErrorCode::link_failed ? *write_error_ : error;
  stream_->set_events(nullptr);
  loop_.defer(*this);
}

void FrameStream::on_readable() {
  Life life(*this);
  pump();
}

}  // namespace hixl::links
