// SPDX-License-Identifier: Apache-2.0
//
// Posts of an RDMA link: from segments to requests.
#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "links/remote_check.hpp"
#include "links/roce/roce_link.hpp"

namespace hixl::links::roce {
namespace {

/// Reads of the peer's word at once: while one is on its way the next chain is collected, and gets its own behind the
/// first; more would only be more packets.
constexpr std::size_t k_markers_max = 2;
/// Requests that a marker takes.
constexpr std::uint32_t k_marker_requests = 2;
/// Numbers between the oldest that is open and the newest: the peer's executed set reaches back over 1024.
constexpr LinkSeq k_numbers_open_max = 1000;
/// Above the longest body of a word.
constexpr std::size_t k_word_body_bytes_max = 128;

ibv_sge piece_of(const std::byte* data, std::size_t size, std::uint32_t key) noexcept {
  return {.addr = reinterpret_cast<std::uint64_t>(data), .length = static_cast<std::uint32_t>(size), .lkey = key};
}

}  // namespace

// ---- posting ----

Answer RoceLink::post(const Post& post) {
  if (state_ != State::up) return Answer::busy;
  if (free_.empty() || !numbers_left()) return busy();
  if (is_signal(post.verb) || is_atomic(post.verb)) return post_word(post);
  HIXL_ASSERT(!post.segments.empty() && post.segments.size() <= wire::k_segments_max);
  // All that the target would check, were it asked.
  if (const auto grant = check_remote(services_.remotes, post); !grant) return refuse(post, grant.error());
  Attempt& attempt = take_attempt(post);
  if (attempt.bytes == 0) {
    free_.push_back(attempt);
    return Answer::done;
  }
  if (keys_.find(post.region) == nullptr) {
    keys_.add(post.region);
    const Result<void> asked = order({.type = wire::FrameType::roce_ask, .region = post.region, .token = post.token});
    if (!asked) break_down(asked.error());
  }
  if (begin(attempt) == Begun::waits) waiting_.push_back(attempt);
  flush_later();
  return Answer::posted;
}

Answer RoceLink::post_word(const Post& post) {
  if (!stream_->room_for(k_word_body_bytes_max)) return busy();
  std::array<std::byte, k_word_body_bytes_max> body;
  ByteWriter writer(body);
  const std::uint64_t offset = post.segments.front().offset;
  if (is_signal(post.verb)) {
    encode(wire::SignalBody{.region = post.region,
                            .token = post.token,
                            .offset = offset,
                            .value = post.value,
                            .add = static_cast<std::uint8_t>(post.verb == Verb::signal_add)},
           writer);
  } else {
    encode(atomic_body(post, offset), writer);
  }
  HIXL_ASSERT(writer.ok());
  Attempt& attempt = take_attempt(post);
  wire::FrameHeader header =
      sequencer_.next_header(is_signal(post.verb) ? wire::FrameType::signal : wire::FrameType::atomic);
  header.op_id = post.op_id;
  header.chunk = post.chunk;
  header.attempt = post.attempt;
  const bool sent = stream_->send(header, writer.written());
  HIXL_ASSERT(sent);
  attempt.number = header.link_seq;
  words_.push_back(attempt);
  return Answer::posted;
}

RoceLink::Attempt& RoceLink::take_attempt(const Post& post) {
  Attempt& attempt = *free_.pop_front();
  attempt.verb = post.verb;
  attempt.abandoned = false;
  attempt.cookie = post.cookie;
  attempt.number = 0;
  attempt.bytes = 0;
  for (const Segment& segment : post.segments) attempt.bytes += segment.bytes;
  attempt.segments = post.segments;
  attempt.device = &post.device();
  attempt.region = post.region;
  attempt.ends_at = 0;
  attempt.key = nullptr;
  attempt.buffer = nullptr;
  attempt.used = 0;
  attempt.error = {};
  attempt.value = 0;
  return attempt;
}

Answer RoceLink::refuse(const Post& post, const Error& error) {
  Attempt& attempt = take_attempt(post);
  end(attempt, error);
  return Answer::posted;
}

Answer RoceLink::busy() {
  credit_wanted_ = true;
  return Answer::busy;
}

/// Whether the next number is still near enough to the oldest that is open.
bool RoceLink::numbers_left() noexcept {
  LinkSeq oldest = words_.empty() ? 0 : words_.front()->number;
  for (Attempt* attempt = in_flight_.front(); attempt != nullptr; attempt = in_flight_.next(*attempt)) {
    if (attempt->number == 0) continue;  // a read
    oldest = oldest == 0 ? attempt->number : std::min(oldest, attempt->number);
    break;
  }
  return oldest == 0 || sequencer_.sent() - oldest < k_numbers_open_max;
}

/// Puts an attempt into the chain, if everything is there that it needs. One that waits has taken nothing.
RoceLink::Begun RoceLink::begin(Attempt& attempt) {
  RemoteKeyEntry* const key = keys_.find(attempt.region);
  if (key == nullptr || key->state != RemoteKeyEntry::State::ready) return begin_without_key(attempt, key);
  // At most one request a segment.
  if (queue_->room() < attempt.segments.size() + k_marker_requests) return Begun::waits;
  if (attempt.verb == Verb::write && !numbers_left()) return Begun::waits;  // others took them meanwhile
  const bool addressable = attempt.device->caps().cpu_addressable;
  const bool inlined = attempt.verb == Verb::write && addressable && attempt.bytes <= queue_->inline_bytes() &&
                       attempt.bytes <= max_inline_;
  std::array<ibv_sge, wire::k_segments_max> pieces;
  const std::span<ibv_sge> places(pieces.data(), attempt.segments.size());
  const Begun placed = addressable ? place(attempt, places, inlined) : place_in_buffer(attempt, places);
  if (placed != Begun::posted) return placed;
  enqueue(attempt, *key, places, inlined);
  return Begun::posted;
}

RoceLink::Begun RoceLink::begin_without_key(Attempt& attempt, const RemoteKeyEntry* key) {
  if (key != nullptr && key->state == RemoteKeyEntry::State::asked) return Begun::waits;
  const bool refused = key != nullptr && key->state == RemoteKeyEntry::State::refused;
  end(attempt, refused ? key->error : Error(ErrorCode::stale, {.stage = Stage::remote_check}));
  return Begun::ended;
}

RoceLink::Begun RoceLink::place(Attempt& attempt, std::span<ibv_sge> pieces, bool inlined) {
  if (inlined) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pieces[i] = piece_of(attempt.segments[i].local, attempt.segments[i].bytes, 0);
    }
    return Begun::posted;
  }
  Registrations& registrations = adapter_->registrations();
  Registration* last = nullptr;
  std::uint32_t used = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Segment& segment = attempt.segments[i];
    if (last == nullptr || !last->holds(segment.local, segment.bytes)) {
      const auto info = services_.regions.find(segment.local, segment.bytes);
      last = info ? registrations.want(*info, *this) : nullptr;
      if (last != nullptr && last->state() == Registration::State::registering) return Begun::waits;
      // Memory that nobody registered, or that the card does not take.
      if (last == nullptr || last->state() != Registration::State::ready) return place_in_buffer(attempt, pieces);
      attempt.registrations[used++] = last;
    }
    pieces[i] = piece_of(segment.local, segment.bytes, last->memory().local_key());
  }
  attempt.used = used;
  for (Registration* one : std::span(attempt.registrations).first(used)) registrations.use(*one);
  return Begun::posted;
}

RoceLink::Begun RoceLink::place_in_buffer(Attempt& attempt, std::span<ibv_sge> pieces) {
  if (attempt.bytes > adapter_->buffer_bytes()) {
    end(attempt, Error(ErrorCode::limit_reached,
                       {.stage = Stage::local_check, .length = attempt.bytes, .limit = adapter_->buffer_bytes()}));
    return Begun::ended;
  }
  Adapter::Buffer* const buffer = adapter_->take_buffer();
  if (buffer == nullptr) return Begun::waits;
  attempt.buffer = buffer;
  std::byte* at = buffer->bytes.data();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Segment& segment = attempt.segments[i];
    if (attempt.verb == Verb::write && segment.bytes != 0) {
      attempt.device->read(at, segment.local, segment.bytes);
      traffic_.copies += 1;
    }
    pieces[i] = piece_of(at, segment.bytes, buffer->local_key);
    at += segment.bytes;
  }
  return Begun::posted;
}

/// One request for each run of segments that lie side by side at the peer.
void RoceLink::enqueue(Attempt& attempt, RemoteKeyEntry& key, std::span<const ibv_sge> pieces, bool inlined) {
  const bool write = attempt.verb == Verb::write;
  std::array<ibv_sge, wire::k_segments_max> run;
  std::size_t count = 0;
  std::uint64_t begins = 0, ends = 0;
  const auto add = [&](bool last) {
    if (count == 0) return;
    attempt.ends_at = queue_->add({.opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                                   .address = key.address + begins,
                                   .key = key.key,
                                   .inlined = inlined,
                                   .signalled = last && !write},
                                  std::span(run).first(count));
    count = 0;
  };
  std::size_t left = pieces.size();
  while (left > 0 && pieces[left - 1].length == 0) --left;  // so that the last request is known when it comes
  for (std::size_t i = 0; i < left; ++i) {
    if (pieces[i].length == 0) continue;
    const std::uint64_t offset = attempt.segments[i].offset;
    if (count != 0 && (offset != ends || count == queue_->pieces_max())) add(false);
    if (count == 0) begins = offset;
    run[count++] = pieces[i];
    ends = offset + pieces[i].length;
  }
  add(true);
  if (!write && attempt.ends_at > 1 && HIXL_PLANTED(rdma_read_done_early)) attempt.ends_at -= 1;
  attempt.key = &key;
  key.uses += 1;
  if (write) {
    attempt.number = newest_write_ = sequencer_.take_number();
    attempt.ends_at = 0;  // with the next marker
    if (HIXL_PLANTED(rdma_marker_reaches_back) && !markers_.empty()) attempt.ends_at = markers_.front().place;
    uncovered_ += 1;
  }
  in_flight_.push_back(attempt);
}

/// The end of a turn: what waited, a marker, and the doorbell.
void RoceLink::flush() {
  if (state_ != State::up) return;
  send_orders();
  Attempts round;
  round.append(waiting_);
  while (Attempt* attempt = round.pop_front()) {
    if (begin(*attempt) == Begun::waits) waiting_.push_back(*attempt);
  }
  if (state_ != State::up) return;
  const bool tight = queue_->room() < queue_->depth() / 2;
  if (uncovered_ != 0 && (markers_.size() < k_markers_max || tight)) add_marker();
  if (const Result<void> posted = queue_->ring(); !posted) return break_down(posted.error());
  if (queue_->busy()) services_.loop.attach(*this);
}

void RoceLink::add_marker() {
  if (queue_->room() < k_marker_requests) return;  // a later completion brings some
  progress_value_ = newest_write_;
  const bool by_read = rails_.options().visibility == RdmaVisibility::read && !HIXL_PLANTED(rdma_complete_unseen);
  const ibv_sge number = piece_of(reinterpret_cast<const std::byte*>(&progress_value_), k_word_bytes, 0);
  std::uint64_t place = queue_->add({.opcode = IBV_WR_RDMA_WRITE,
                                     .address = peer_.page_address,
                                     .key = peer_.page_key,
                                     .inlined = true,
                                     .signalled = !by_read},
                                    {&number, 1});
  if (by_read) {
    const ibv_sge seen = piece_of(endpoint_->page() + k_page_seen, k_word_bytes, endpoint_->page_key());
    place = queue_->add(
        {.opcode = IBV_WR_RDMA_READ, .address = peer_.page_address, .key = peer_.page_key, .signalled = true},
        {&seen, 1});
  }
  markers_.push({.place = place, .number = by_read ? progress_value_ : 0});
  for (Attempt* attempt = in_flight_.back(); attempt != nullptr && uncovered_ > 0;
       attempt = in_flight_.previous(*attempt)) {
    if (attempt->verb != Verb::write) continue;
    attempt->ends_at = place;
    uncovered_ -= 1;
  }
}

}  // namespace hixl::links::roce
