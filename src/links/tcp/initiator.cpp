// SPDX-License-Identifier: Apache-2.0
#include "links/tcp/initiator.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "memory/memory_limit.hpp"

namespace hixl::links::tcp {
namespace {

/// Above the longest body of a post: an access of 32 segments has 412 bytes.
constexpr std::size_t k_post_body_bytes_max = 512;

bool moves_bytes(Verb verb) noexcept { return verb == Verb::write || verb == Verb::read; }

wire::FrameType frame_type(Verb verb) noexcept {
  switch (verb) {
    case Verb::write:
      return wire::FrameType::write;
    case Verb::read:
      return wire::FrameType::read;
    case Verb::signal_set:
    case Verb::signal_add:
      break;
    case Verb::atomic_add:
    case Verb::atomic_swap:
    case Verb::atomic_compare_swap:
      return wire::FrameType::atomic;
  }
  return wire::FrameType::signal;
}

void encode_post(const Post& post, ByteWriter& writer) {
  if (is_signal(post.verb)) {
    encode(wire::SignalBody{.region = post.region,
                            .token = post.token,
                            .offset = post.segments.front().offset,
                            .value = post.value,
                            .add = static_cast<std::uint8_t>(post.verb == Verb::signal_add)},
           writer);
    return;
  }
  if (is_atomic(post.verb)) return encode(atomic_body(post, post.segments.front().offset), writer);
  wire::Access access;
  access.region = post.region;
  access.token = post.token;
  for (const Segment& segment : post.segments) {
    access.segments[access.segment_count++] = {segment.offset, segment.bytes};
  }
  encode(access, writer);
}

}  // namespace

Initiator::Initiator(const LinkIdentity& identity, const LinkServices& services, Staging& staging)
    : identity_(identity),
      depth_(services.tx_depth),
      check_payload_(services.check_payload),
      staging_(staging),
      attempts_(std::make_unique<Attempt[]>(depth_)) {
  for (std::uint32_t i = 0; i < depth_; ++i) free_.push_back(attempts_[i]);
}

Answer Initiator::post(const Post& post, FrameStream& stream, Sequencer& sequencer) {
  HIXL_ASSERT(!post.segments.empty() && post.segments.size() <= wire::k_segments_max);
  const std::size_t body_bytes_max =
      k_post_body_bytes_max + (check_payload_ ? wire::k_marks_max * wire::k_mark_bytes : 0);
  if (free_.empty() || !stream.room_for(body_bytes_max)) return Answer::busy;
  Attempt& attempt = *free_.pop_front();
  attempt.verb = post.verb;
  attempt.abandoned = false;
  attempt.cookie = post.cookie;
  attempt.seq = 0;
  attempt.segments = post.segments;
  attempt.bytes = 0;
  attempt.value = 0;
  attempt.device = nullptr;
  Payload payload;
  if (moves_bytes(post.verb)) {
    for (const Segment& segment : post.segments) attempt.bytes += segment.bytes;
    if (post.local_device != nullptr && !post.local_device->caps().cpu_addressable) attempt.device = post.local_device;
    if (post.verb == Verb::write && gather(post, attempt, payload) == Answer::busy) {
      free_.push_back(attempt);
      return Answer::busy;
    }
    if (payload.staged != nullptr && payload.staged->pages.size() < attempt.bytes) {
      end(attempt, Error(ErrorCode::no_memory, {.rank = identity_.rank,
                                                .link = identity_.link_id,
                                                .stage = Stage::transfer,
                                                .os_error = ENOMEM,
                                                .length = attempt.bytes,
                                                .limit = memory::address_space_limit()}));
      return Answer::posted;
    }
  }

  std::array<std::byte, k_post_body_bytes_max> body;
  ByteWriter writer(body);
  encode_post(post, writer);
  HIXL_ASSERT(writer.ok());
  wire::FrameHeader header = sequencer.next_header(frame_type(post.verb));
  header.op_id = post.op_id;
  header.chunk = post.chunk;
  header.attempt = post.attempt;
  if (check_payload_ && attempt.bytes != 0) header.flags = wire::k_flag_payload_crc;
  const std::uint64_t ticket = payload.count != 0 ? write_ticket(header.link_seq) : 0;
  if (payload.staged != nullptr) payload.staged->ticket = ticket;
  const bool sent =
      stream.send(header, writer.written(), std::span<const iovec>(payload.pieces).first(payload.count), ticket);
  HIXL_ASSERT(sent);
  attempt.seq = header.link_seq;
  in_flight_.push_back(attempt);
  return Answer::posted;
}

Answer Initiator::gather(const Post& post, const Attempt& attempt, Payload& payload) {
  if (attempt.device == nullptr || attempt.bytes == 0) {
    for (const Segment& segment : post.segments) {
      if (segment.bytes != 0) payload.pieces[payload.count++] = {segment.local, segment.bytes};
    }
    return Answer::done;
  }
  payload.staged = staging_.free_buffer(Staging::Use::post, attempt.bytes);
  if (payload.staged == nullptr) return Answer::busy;
  if (payload.staged->pages.size() < attempt.bytes) return Answer::done;
  for (const Segment& segment : post.segments) {
    if (segment.bytes != 0) staging_.fetch(*payload.staged, *attempt.device, segment.local, segment.bytes);
  }
  payload.pieces[payload.count++] = {payload.staged->pages.data(), attempt.bytes};
  return Answer::done;
}

std::size_t Initiator::poll(std::span<Completion> out) noexcept {
  std::size_t count = 0;
  while (count < out.size() && !done_.empty()) {
    Attempt& attempt = *done_.pop_front();
    out[count++] = {attempt.cookie, attempt.error, attempt.value};
    free_.push_back(attempt);
  }
  return count;
}

bool Initiator::abandon(std::uint64_t cookie) noexcept {
  for (Attempt* attempt = in_flight_.front(); attempt != nullptr; attempt = in_flight_.next(*attempt)) {
    if (attempt->cookie != cookie || attempt->abandoned) continue;
    if (attempt->verb != Verb::read) return false;
    attempt->abandoned = true;
    if (!HIXL_PLANTED(read_not_taken_back)) attempt->segments = {};
    return true;
  }
  for (Attempt* attempt = done_.front(); attempt != nullptr; attempt = done_.next(*attempt)) {
    if (attempt->cookie != cookie) continue;
    attempt->unlink();
    free_.push_back(*attempt);
    break;
  }
  return true;
}

LinkSeq Initiator::sequence_of(std::uint64_t cookie) const noexcept {
  for (Attempt* attempt = in_flight_.front(); attempt != nullptr; attempt = in_flight_.next(*attempt)) {
    if (attempt->cookie == cookie && !attempt->abandoned) return attempt->seq;
  }
  return 0;
}

Result<void> Initiator::on_ack(LinkSeq upto, const FrameStream& stream) {
  Attempt* last_write = nullptr;
  for (Attempt* attempt = in_flight_.front(); attempt != nullptr && attempt->seq <= upto;
       attempt = in_flight_.next(*attempt)) {
    if (attempt->verb == Verb::write) last_write = attempt;
  }
  // Frames leave in order. A peer that acknowledges what has not left would free memory that the stream still reads.
  if (last_write != nullptr && stream.holds_ticket(write_ticket(last_write->seq))) return malformed(upto);
  for (Attempt* attempt = in_flight_.front(); attempt != nullptr && attempt->seq <= upto;) {
    Attempt* const next = in_flight_.next(*attempt);
    if (attempt->verb != Verb::read && !is_atomic(attempt->verb)) {
      if (attempt->verb == Verb::write) bytes_out_ += attempt->bytes;
      end(*attempt, Error());
    }
    attempt = next;
  }
  return {};
}

Result<void> Initiator::on_nack(const wire::Nack& nack, const FrameStream& stream) {
  Attempt* const attempt = find_by_seq(nack.seq);
  if (attempt == nullptr || stream.holds_ticket(write_ticket(nack.seq))) return malformed(nack.seq);
  const auto code = static_cast<ErrorCode>(nack.code);
  const bool corrupt = code == ErrorCode::payload_corrupt;
  // Of bytes that went without a checksum nobody can say that they changed.
  if (corrupt && (!check_payload_ || attempt->verb != Verb::write || attempt->bytes == 0)) return malformed(nack.seq);
  end(*attempt, Error(code, {.rank = identity_.rank,
                             .link = identity_.link_id,
                             .stage = corrupt ? Stage::transfer : Stage::remote_check,
                             .address = nack.address,
                             .length = nack.length,
                             .nearest_base = nack.nearest_base,
                             .nearest_length = nack.nearest_length,
                             .limit = nack.limit}));
  return {};
}

Result<void> Initiator::on_atomic_result(const wire::AtomicResult& message) {
  Attempt* const attempt = find_by_seq(message.seq);
  if (attempt == nullptr || !is_atomic(attempt->verb)) return malformed(message.seq);
  attempt->value = message.value;
  end(*attempt, Error());
  return {};
}

Result<void> Initiator::on_read_start(const wire::ReadData& message, std::uint32_t payload_bytes) {
  Attempt* const attempt = find_by_seq(message.read_seq);
  if (attempt == nullptr || attempt->verb != Verb::read || attempt->bytes != payload_bytes) {
    return malformed(message.read_seq);
  }
  reading_ = attempt;
  cursor_ = {};
  return {};
}

Result<std::size_t> Initiator::read_target(std::span<iovec> out) {
  HIXL_ASSERT(reading_ != nullptr);
  std::size_t count = 0;
  SegmentCursor at = cursor_;
  if (reading_->device != nullptr && !reading_->abandoned) {
    std::size_t left = 0;
    for (; at.index < reading_->segments.size(); at = {at.index + 1, 0}) {
      left += reading_->segments[at.index].bytes - at.done;
    }
    const Bytes room = staging_.incoming(left);
    if (room.empty()) {
      return fail(ErrorCode::no_memory, {.rank = identity_.rank,
                                         .link = identity_.link_id,
                                         .stage = Stage::transfer,
                                         .os_error = ENOMEM,
                                         .length = left,
                                         .limit = memory::address_space_limit()});
    }
    out[0] = {room.data(), room.size()};
    return 1;
  }
  for (; at.index < reading_->segments.size() && count < out.size(); at = {at.index + 1, 0}) {
    const Segment& segment = reading_->segments[at.index];
    if (segment.bytes != at.done) out[count++] = {segment.local + at.done, segment.bytes - at.done};
  }
  return count;
}

void Initiator::on_read_bytes(std::size_t bytes) noexcept {
  if (reading_->abandoned && !HIXL_PLANTED(read_not_taken_back)) return;
  if (reading_->device != nullptr) {
    std::size_t left = bytes;
    for (SegmentCursor at = cursor_; left != 0; at = {at.index + 1, 0}) {
      const Segment& segment = reading_->segments[at.index];
      const std::size_t part = std::min<std::size_t>(left, segment.bytes - at.done);
      if (part != 0) staging_.deliver(*reading_->device, segment.local + at.done, part);
      left -= part;
    }
  }
  cursor_.advance(reading_->segments, bytes);
}

void Initiator::on_read_end() noexcept {
  if (!reading_->abandoned) bytes_in_ += reading_->bytes;
  end(*reading_, Error());
  reading_ = nullptr;
}

Error Initiator::on_read_corrupt(const wire::PayloadPiece& piece) noexcept {
  Error error(ErrorCode::payload_corrupt,
              {.rank = identity_.rank, .link = identity_.link_id, .stage = Stage::transfer, .length = piece.bytes});
  if (!reading_->abandoned) {  // one that was taken back has no segments any more
    const SegmentCursor at = find_piece(reading_->segments, piece.offset);
    const Segment& segment = reading_->segments[at.index];
    error.detail.address = reinterpret_cast<std::uint64_t>(segment.local) + at.done;
    error.detail.length = std::min<std::uint64_t>(piece.bytes, segment.bytes - at.done);
    error.detail.limit = segment.offset + at.done;
  }
  end(*reading_, error);
  reading_ = nullptr;
  return error;
}

Initiator::Attempt* Initiator::find_by_seq(LinkSeq seq) noexcept {
  // Answers come nearly in order, so that the first look mostly hits.
  for (Attempt* attempt = in_flight_.front(); attempt != nullptr && attempt->seq <= seq;
       attempt = in_flight_.next(*attempt)) {
    if (attempt->seq == seq) return attempt;
  }
  return nullptr;
}

void Initiator::end(Attempt& attempt, const Error& error) noexcept {
  attempt.unlink();
  attempt.error = error;
  (attempt.abandoned ? free_ : done_).push_back(attempt);
}

tl::unexpected<Error> Initiator::malformed(LinkSeq seq) const {
  return fail(ErrorCode::malformed_frame, {.rank = identity_.rank, .link = identity_.link_id, .length = seq});
}

}  // namespace hixl::links::tcp
