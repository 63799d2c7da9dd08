// SPDX-License-Identifier: Apache-2.0
#include "links/frame_queue.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "wire/payload_sum.hpp"

namespace hixl::links {
namespace {

// A link with the default depth of 32 chunks stays within the kept sizes, which keeps its steady state free of
// allocations; a peer at rest pays for the initial ones only.
constexpr Fifo<std::byte>::Room k_head_room{.initial = 4U << 10U, .kept_max = 32U << 10U};
constexpr std::size_t k_pieces_initial = 64;
constexpr std::size_t k_pieces_kept = 1024;
constexpr std::size_t k_records_initial = 32;
constexpr std::size_t k_records_kept = 256;

/// Appends what is left of a piece after `skip` bytes, and takes from `skip` what it covered.
bool add_piece(FrameQueue::Gathered& gathered, std::span<iovec> out, const void* base, std::size_t size,
               std::size_t& skip) {
  const std::size_t skipped = std::min(skip, size);
  skip -= skipped;
  if (skipped == size) return true;
  if (gathered.pieces == out.size()) return false;
  // iovec serves reading and writing and has no const form.
  auto* start = const_cast<std::byte*>(static_cast<const std::byte*>(base)) + skipped;
  out[gathered.pieces++] = {start, size - skipped};
  gathered.bytes += size - skipped;
  return true;
}

}  // namespace

FrameQueue::FrameQueue()
    : bytes_(k_head_room),
      pieces_({k_pieces_initial, k_pieces_kept}),
      records_({k_records_initial, k_records_kept}),
      sent_({k_records_initial, k_records_kept}) {}

Result<void> FrameQueue::push(wire::FrameHeader header, const Frame& frame) {
  std::vector<runtime::Fd> duplicates;
  for (const int fd : frame.fds) {
    runtime::Fd duplicate(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!duplicate) return fail(ErrorCode::fd_limit, {.os_error = errno});
    duplicates.push_back(std::move(duplicate));
  }
  std::size_t payload_bytes = 0;
  for (const iovec& piece : frame.pieces) payload_bytes += piece.iov_len;
  const std::size_t marks = wire::marks_of(header.flags, payload_bytes);
  const std::size_t body_bytes = frame.body.size() + marks * wire::k_mark_bytes;
  HIXL_ASSERT(body_bytes <= wire::k_body_bytes_max && payload_bytes <= wire::k_payload_bytes_max);

  const std::size_t head_bytes = wire::k_header_bytes + body_bytes;
  const Bytes head = bytes_.extend(head_bytes);
  const Bytes body = head.subspan(wire::k_header_bytes);
  std::copy(frame.body.begin(), frame.body.end(), body.begin());
  header.payload_crc = 0;
  if ((header.flags & wire::k_flag_payload_crc) != 0) {
    wire::PayloadSum sum;
    for (const iovec& piece : frame.pieces) sum.add({static_cast<const std::byte*>(piece.iov_base), piece.iov_len});
    header.payload_crc = sum.whole();
    ByteWriter writer(body.subspan(frame.body.size()));
    for (const std::uint32_t mark : std::span(sum.marks()).first(marks)) writer.put(mark);
    HIXL_ASSERT(writer.ok() && writer.size() == marks * wire::k_mark_bytes);
  }
  header.body_bytes = static_cast<std::uint32_t>(body_bytes);
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  header.body_crc = wire::crc32c(body);
  wire::encode(header, head.first<wire::k_header_bytes>());
  if (!frame.pieces.empty()) {
    std::copy(frame.pieces.begin(), frame.pieces.end(), pieces_.extend(frame.pieces.size()).begin());
  }
  records_.push({.ticket = frame.ticket,
                 .head_bytes = static_cast<std::uint32_t>(head_bytes),
                 .payload_bytes = header.payload_bytes,
                 .pieces = static_cast<std::uint32_t>(frame.pieces.size()),
                 .fds = static_cast<std::uint32_t>(duplicates.size())});
  for (runtime::Fd& duplicate : duplicates) {
    fds_.push_back(duplicate.get());
    owned_fds_.push_back(std::move(duplicate));
  }
  return {};
}

bool FrameQueue::holds_ticket(std::uint64_t ticket) const noexcept {
  const auto records = records_.items();
  return std::any_of(records.begin(), records.end(), [&](const Record& record) { return record.ticket == ticket; });
}

FrameQueue::Gathered FrameQueue::gather(std::span<iovec> out) const noexcept {
  Gathered gathered;
  std::size_t skip = front_written_;
  const std::byte* head = bytes_.items().data();
  const iovec* piece = pieces_.items().data();
  bool first = true;
  for (const Record& record : records_.items()) {
    if (record.fds != 0 && !first) break;
    if (!add_piece(gathered, out, head, record.head_bytes, skip)) break;
    for (const iovec* end = piece + record.pieces; piece != end; ++piece) {
      if (!add_piece(gathered, out, piece->iov_base, piece->iov_len, skip)) return gathered;
    }
    head += record.head_bytes;
    if (record.fds != 0) {
      if (front_written_ == 0) gathered.fds = std::span(fds_).first(record.fds);
      break;
    }
    first = false;
  }
  return gathered;
}

void FrameQueue::advance(std::size_t bytes) {
  if (bytes == 0) return;
  if (const std::uint32_t fds = records_.front().fds; front_written_ == 0 && fds != 0) {
    fds_.erase(fds_.begin(), fds_.begin() + fds);
    owned_fds_.erase(owned_fds_.begin(), owned_fds_.begin() + fds);
  }
  front_written_ += bytes;
  while (!records_.empty() && front_written_ >= records_.front().bytes()) {
    const Record record = records_.front();
    front_written_ -= record.bytes();
    records_.drop(1);
    bytes_.drop(record.head_bytes);
    pieces_.drop(record.pieces);
    if (record.ticket != 0) sent_.push(record.ticket);
  }
  HIXL_ASSERT(!records_.empty() || front_written_ == 0);
}

std::uint64_t FrameQueue::take_sent() noexcept {
  if (sent_.empty()) return 0;
  const std::uint64_t ticket = sent_.front();
  sent_.drop(1);
  return ticket;
}

}  // namespace hixl::links
