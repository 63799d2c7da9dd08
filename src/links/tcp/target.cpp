// SPDX-License-Identifier: Apache-2.0
#include "links/tcp/target.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace hixl::links::tcp {
namespace {

// Answers to reads that are kept: those of the default tx_depth, and of a burst of the largest one.
constexpr std::size_t k_answers_initial = 32;
constexpr std::size_t k_answers_kept = 1024;
constexpr std::size_t k_word_bytes = 8;
/// Above the longest nack, 50 bytes.
constexpr std::size_t k_answer_body_bytes_max = 64;

}  // namespace

Target::Target(const LinkIdentity& identity, const LinkServices& services, FrameStream& stream, Sequencer& sequencer)
    : identity_(identity),
      regions_(services.regions),
      signals_(services.signals),
      stream_(stream),
      sequencer_(sequencer),
      answers_({k_answers_initial, k_answers_kept}) {}

Result<void> Target::check(const wire::Access& access, Rights need, Places* places) const {
  for (std::uint32_t i = 0; i < access.segment_count; ++i) {
    const wire::WireSegment& segment = access.segments[i];
    const auto place = regions_.check(access.region, access.token, segment.offset, segment.bytes, need);
    if (!place) return fail(place.error());
    if (!place->device->caps().cpu_addressable) return fail(ErrorCode::unsupported);
    if (places != nullptr) (*places)[i] = place->data;
  }
  return {};
}

Result<void> Target::on_write_start(const wire::FrameHeader& header, ConstBytes body) {
  if (!decode_body(body, writing_.access) || writing_.access.total_bytes() != header.payload_bytes) {
    return broken(ErrorCode::malformed_frame);
  }
  writing_.open = true;
  writing_.seq = header.link_seq;
  writing_.cursor = {};
  writing_.verdict = check(writing_.access, Rights::write, nullptr);
  return {};
}

Result<std::size_t> Target::write_target(std::span<iovec> out) const {
  HIXL_ASSERT(writing_.open);
  if (!writing_.verdict) return 0;
  const wire::Access& access = writing_.access;
  std::size_t count = 0;
  SegmentCursor at = writing_.cursor;
  for (; at.index < access.segment_count && count < out.size(); at = {at.index + 1, 0}) {
    const wire::WireSegment& segment = access.segments[at.index];
    const std::uint32_t bytes = segment.bytes - at.done;
    if (bytes == 0) continue;
    const auto place = regions_.check(access.region, access.token, segment.offset + at.done, bytes, Rights::write);
    // Closed in the middle of the frame: part of it is there, so it can be neither executed nor refused.
    if (!place) return broken(ErrorCode::link_failed);
    out[count++] = {place->data, bytes};
  }
  return count;
}

void Target::on_write_bytes(std::size_t bytes) noexcept {
  if (!writing_.verdict) return;
  const std::span<const wire::WireSegment> segments(writing_.access.segments.data(), writing_.access.segment_count);
  writing_.cursor.advance(segments, bytes);
}

Result<void> Target::on_write_end() {
  writing_.open = false;
  // Only now: a nack tells the peer that its source is free.
  if (!writing_.verdict) return refuse(writing_.seq, writing_.verdict.error());
  sequencer_.executed(writing_.seq, true);
  return {};
}

Result<void> Target::on_read(const wire::FrameHeader& header, ConstBytes body) {
  wire::Access access;
  if (!decode_body(body, access)) return broken(ErrorCode::malformed_frame);
  Places places;
  if (const Result<void> verdict = check(access, Rights::read, &places); !verdict) {
    return refuse(header.link_seq, verdict.error());
  }
  std::array<iovec, wire::k_segments_max> pieces;
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < access.segment_count; ++i) {
    if (access.segments[i].bytes != 0) pieces[count++] = {places[i], access.segments[i].bytes};
  }
  std::array<std::byte, k_answer_body_bytes_max> answer;
  ByteWriter writer(answer);
  encode(wire::ReadData{header.link_seq}, writer);
  HIXL_ASSERT(writer.ok());
  wire::FrameHeader answer_header = sequencer_.header(wire::FrameType::read_data);
  answer_header.op_id = header.op_id;
  answer_header.chunk = header.chunk;
  answer_header.attempt = header.attempt;
  const std::uint64_t ticket = count != 0 ? answer_ticket(header.link_seq) : 0;
  // The answer only references the region. A peer that asks on without reading meets the end of the reserve; reading
  // less from it instead would be a deadlock when both sides do it.
  if (!stream_.send_answer(answer_header, writer.written(), std::span<const iovec>(pieces).first(count), ticket)) {
    return broken(ErrorCode::limit_reached);
  }
  if (ticket != 0) answers_.push({ticket, access.region});
  sequencer_.executed(header.link_seq, true);
  return {};
}

Result<void> Target::on_signal(const wire::FrameHeader& header, ConstBytes body) {
  wire::SignalBody signal;
  if (!decode_body(body, signal)) return broken(ErrorCode::malformed_frame);
  const auto place = regions_.check(signal.region, signal.token, signal.offset, k_word_bytes, Rights::write);
  if (!place) return refuse(header.link_seq, place.error());
  if (!place->device->caps().atomic_capable) return refuse(header.link_seq, Error(ErrorCode::unsupported));
  if (const auto address = reinterpret_cast<std::uint64_t>(place->data); address % k_word_bytes != 0) {
    return refuse(header.link_seq,
                  Error(ErrorCode::unaligned, {.address = address, .length = k_word_bytes, .limit = k_word_bytes}));
  }
  if (signal.add != 0) {
    memory::add_word(*place->device, place->data, signal.value);
  } else {
    memory::store_word(*place->device, place->data, signal.value);
  }
  signals_.ring();
  sequencer_.executed(header.link_seq, true);
  return {};
}

void Target::on_sent(std::uint64_t ticket) noexcept {
  HIXL_ASSERT(!answers_.empty() && answers_.front().ticket == ticket);
  answers_.drop(1);
}

bool Target::touches(RegionKey key) const noexcept {
  if (writing_.open && writing_.verdict && writing_.access.region == key) return true;
  const auto answers = answers_.items();
  return std::any_of(answers.begin(), answers.end(), [&](const ReadAnswer& answer) {
    return answer.region == key && stream_.holds_ticket(answer.ticket);
  });
}

Result<void> Target::refuse(LinkSeq seq, const Error& error) {
  std::array<std::byte, k_answer_body_bytes_max> body;
  ByteWriter writer(body);
  encode(wire::Nack{.seq = seq,
                    .code = static_cast<std::uint16_t>(error.code),
                    .address = error.detail.address,
                    .length = error.detail.length,
                    .nearest_base = error.detail.nearest_base,
                    .nearest_length = error.detail.nearest_length,
                    .limit = error.detail.limit},
         writer);
  HIXL_ASSERT(writer.ok());
  if (!stream_.send_answer(sequencer_.header(wire::FrameType::nack), writer.written())) {
    return broken(ErrorCode::limit_reached);
  }
  sequencer_.executed(seq, false);
  return {};
}

tl::unexpected<Error> Target::broken(ErrorCode code) const {
  return fail(code, {.rank = identity_.rank, .link = identity_.link_id, .stage = Stage::transfer});
}

}  // namespace hixl::links::tcp
