// SPDX-License-Identifier: Apache-2.0
#include "links/tcp/target.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "memory/mapping.hpp"

namespace hixl::links::tcp {
namespace {

// Answers to reads that are kept: those of the default tx_depth, and of a burst of the largest one.
constexpr std::size_t k_answers_initial = 32;
constexpr std::size_t k_answers_kept = 1024;

}  // namespace

Target::Target(const LinkIdentity& identity, const LinkServices& services, FrameStream& stream, Sequencer& sequencer,
               Staging& staging)
    : identity_(identity),
      regions_(services.regions),
      check_payload_(services.check_payload),
      stream_(stream),
      sequencer_(sequencer),
      staging_(staging),
      words_(identity, services, stream, sequencer),
      answers_({k_answers_initial, k_answers_kept}) {}

Result<Target::Places> Target::check(const wire::Access& access, Rights need) const {
  Places places;
  for (std::uint32_t i = 0; i < access.segment_count; ++i) {
    const wire::WireSegment& segment = access.segments[i];
    const auto place = regions_.check(access.region, access.token, segment.offset, segment.bytes, need);
    if (!place) return fail(place.error());
    // Memory that the program has unmapped meanwhile would break the link, and again with each new attempt. What it
    // maps there anew cannot be told from the old.
    const bool of_program = place->device->caps().cpu_addressable && !place->owned;
    if (of_program && !memory::is_mapped(place->data, segment.bytes)) {
      return fail(ErrorCode::memory_unmapped,
                  {.address = reinterpret_cast<std::uint64_t>(place->data), .length = segment.bytes});
    }
    places.base = place->data - segment.offset;
    if (!place->device->caps().cpu_addressable) places.device = place->device;
  }
  return places;
}

// ---- writes ----

Result<void> Target::on_write_start(const wire::FrameHeader& header, ConstBytes body) {
  if (!decode_body(body, writing_.access) || writing_.access.total_bytes() != header.payload_bytes) {
    return broken(ErrorCode::malformed_frame);
  }
  const auto places = check(writing_.access, Rights::write);
  writing_.open = true;
  writing_.seq = header.link_seq;
  writing_.cursor = {};
  writing_.places = places ? *places : Places{};
  writing_.torn = false;
  writing_.verdict = places ? Result<void>() : Result<void>(fail(places.error()));
  if (places && HIXL_PLANTED(write_acknowledged_at_start)) sequencer_.executed(writing_.seq, true);
  return {};
}

Result<std::size_t> Target::write_target(std::span<iovec> out) {
  HIXL_ASSERT(writing_.open);
  if (!writing_.verdict) return 0;
  const wire::Access& access = writing_.access;
  // Closed in the middle of the frame: part of it is there, so it can be neither executed nor refused.
  if (!regions_.stands(access.region)) return broken(ErrorCode::link_failed);
  std::size_t count = 0;
  std::size_t staged_bytes = 0;
  SegmentCursor at = writing_.cursor;
  for (; at.index < access.segment_count && count < out.size(); at = {at.index + 1, 0}) {
    const wire::WireSegment& segment = access.segments[at.index];
    const std::uint32_t bytes = segment.bytes - at.done;
    if (bytes == 0) continue;
    if (writing_.places.device != nullptr) {
      staged_bytes += bytes;
    } else {
      out[count++] = {writing_.places.of(segment) + at.done, bytes};
    }
  }
  if (staged_bytes == 0) return count;
  const Bytes room = staging_.incoming(staged_bytes);
  if (room.empty()) return broken(ErrorCode::no_memory);
  out[0] = {room.data(), room.size()};
  return 1;
}

/// What has been read into the staging buffer goes to the device, if the region still stands; false if not.
bool Target::deliver(std::size_t bytes) {
  const wire::Access& access = writing_.access;
  for (SegmentCursor at = writing_.cursor; bytes != 0; at = {at.index + 1, 0}) {
    const wire::WireSegment& segment = access.segments[at.index];
    const std::size_t part = std::min<std::size_t>(bytes, segment.bytes - at.done);
    bytes -= part;
    if (part == 0) continue;
    if (!regions_.stands(access.region)) return false;
    staging_.deliver(*writing_.places.device, writing_.places.of(segment) + at.done, part);
  }
  return true;
}

void Target::on_write_bytes(std::size_t bytes) {
  if (!writing_.verdict) return;
  if (writing_.places.device != nullptr && !deliver(bytes)) writing_.torn = true;
  const std::span<const wire::WireSegment> segments(writing_.access.segments.data(), writing_.access.segment_count);
  writing_.cursor.advance(segments, bytes);
}

Result<void> Target::on_write_end() {
  writing_.open = false;
  // Only now: a nack tells the peer that its source is free.
  if (!writing_.verdict) return refuse(writing_.seq, writing_.verdict.error());
  if (writing_.torn) return broken(ErrorCode::link_failed);
  if (!HIXL_PLANTED(write_acknowledged_at_start)) sequencer_.executed(writing_.seq, true);
  return {};
}

Result<void> Target::on_write_corrupt(const wire::PayloadPiece& piece, Error& told) {
  if (!writing_.verdict || writing_.torn) return on_write_end();
  writing_.open = false;
  const std::span<const wire::WireSegment> segments(writing_.access.segments.data(), writing_.access.segment_count);
  const SegmentCursor at = find_piece(segments, piece.offset);
  const std::uint64_t offset = segments[at.index].offset + at.done;
  const std::uint64_t bytes = std::min<std::uint64_t>(piece.bytes, segments[at.index].bytes - at.done);
  // Closed since its last byte came: as in write_target().
  if (!regions_.stands(writing_.access.region)) return broken(ErrorCode::link_failed);
  told = Error(ErrorCode::payload_corrupt, {.rank = identity_.rank,
                                            .link = identity_.link_id,
                                            .stage = Stage::transfer,
                                            .address = reinterpret_cast<std::uint64_t>(writing_.places.base + offset),
                                            .length = bytes,
                                            .limit = offset});
  return refuse(writing_.seq, told);
}

// ---- reads ----

Result<void> Target::on_read(const wire::FrameHeader& header, ConstBytes body) {
  Read read{.seq = header.link_seq,
            .op_id = header.op_id,
            .chunk = header.chunk,
            .attempt = header.attempt,
            .checked = check_payload_ || (header.flags & wire::k_flag_payload_crc) != 0,
            .access = {}};
  if (!decode_body(body, read.access)) return broken(ErrorCode::malformed_frame);
  const auto places = check(read.access, Rights::read);
  if (!places) return refuse(read.seq, places.error());
  // A read changes nothing here, so nobody asks whether it was executed; who sent it waits for the data.
  if (places->device != nullptr && read.access.total_bytes() != 0) {
    sequencer_.executed(read.seq, true);
    return waiting_.empty() ? answer_staged(read, *places) : wait(read);
  }
  std::array<iovec, wire::k_segments_max> pieces;
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < read.access.segment_count; ++i) {
    const wire::WireSegment& segment = read.access.segments[i];
    if (segment.bytes != 0) pieces[count++] = {places->of(segment), segment.bytes};
  }
  if (const Result<void> sent = answer(read, std::span<const iovec>(pieces).first(count), nullptr); !sent) return sent;
  sequencer_.executed(read.seq, true);
  return {};
}

/// The answer only references its pieces.
Result<void> Target::answer(const Read& read, std::span<const iovec> pieces, Staging::Outgoing* staged) {
  std::array<std::byte, k_answer_body_bytes_max> body;
  ByteWriter writer(body);
  encode(wire::ReadData{read.seq}, writer);
  HIXL_ASSERT(writer.ok());
  wire::FrameHeader header = sequencer_.header(wire::FrameType::read_data);
  header.op_id = read.op_id;
  header.chunk = read.chunk;
  header.attempt = read.attempt;
  if (read.checked && !pieces.empty()) header.flags = wire::k_flag_payload_crc;
  const std::uint64_t ticket = pieces.empty() ? 0 : answer_ticket(read.seq);
  // A peer that asks on without reading meets the end of the reserve; reading less from it instead would be a deadlock
  // when both sides do it.
  if (!stream_.send_answer(header, writer.written(), pieces, ticket)) return broken(ErrorCode::limit_reached);
  if (staged != nullptr) staged->ticket = ticket;
  if (ticket != 0) answers_.push({ticket, staged != nullptr ? RegionKey{} : read.access.region});
  return {};
}

/// Fetches the data into a buffer, or waits for one.
Result<void> Target::answer_staged(const Read& read, const Places& places) {
  const std::size_t bytes = read.access.total_bytes();
  Staging::Outgoing* buffer = staging_.free_buffer(Staging::Use::answer, bytes);
  if (buffer == nullptr) return wait(read);
  if (buffer->pages.size() < bytes) return words_.send_nack(read.seq, Error(ErrorCode::no_memory, {.length = bytes}));
  for (std::uint32_t i = 0; i < read.access.segment_count; ++i) {
    const wire::WireSegment& segment = read.access.segments[i];
    if (segment.bytes != 0) staging_.fetch(*buffer, *places.device, places.of(segment), segment.bytes);
  }
  const iovec piece{buffer->pages.data(), bytes};
  return answer(read, std::span(&piece, 1), buffer);
}

Result<void> Target::wait(const Read& read) {
  if (waiting_.size() >= wire::k_depth_max) return broken(ErrorCode::limit_reached);  // no peer may have more open
  waiting_.push_back(read);
  return {};
}

Result<void> Target::on_sent(std::uint64_t ticket) {
  HIXL_ASSERT(!answers_.empty() && answers_.front().ticket == ticket);
  answers_.drop(1);
  if (!staging_.on_sent(ticket)) return {};
  // One that is refused takes no buffer, so the next one has its turn at once.
  while (!waiting_.empty() && staging_.free_buffer(Staging::Use::answer, 0) != nullptr) {
    const Read read = waiting_.front();
    waiting_.pop_front();
    const auto places = check(read.access, Rights::read);  // it may be gone meanwhile
    const Result<void> told = places ? answer_staged(read, *places) : words_.send_nack(read.seq, places.error());
    if (!told) return told;
  }
  return {};
}

// ---- refusals ----

bool Target::touches(RegionKey key) const noexcept {
  if (writing_.open && writing_.verdict && writing_.access.region == key) return true;
  const auto answers = answers_.items();
  return std::any_of(answers.begin(), answers.end(), [&](const ReadAnswer& answer) {
    return answer.region == key && !HIXL_PLANTED(read_answer_outlives_region) && stream_.holds_ticket(answer.ticket);
  });
}

}  // namespace hixl::links::tcp
