// SPDX-License-Identifier: Apache-2.0
#include "peer/operation.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace hixl::peer {

namespace {

/// A segment's length is 32 bits on the wire and a frame is at most one chunk.
constexpr std::uint64_t k_segment_bytes_max = wire::k_payload_bytes_max;

void skip_finished_entries(const Operation& operation, Cursor& cursor) noexcept {
  const auto entries = operation.entries();
  while (cursor.entry < entries.size() && cursor.offset >= entries[cursor.entry].size) {
    cursor.entry += 1;
    cursor.offset = 0;
  }
}

}  // namespace

bool skip_finished_entries(Operation& operation) noexcept {
  skip_finished_entries(operation, operation.cut);
  return operation.all_cut();
}

Chunk cut_chunk(Operation& operation, std::uint64_t bytes_max, std::size_t segments_max) noexcept {
  const auto entries = operation.entries();
  skip_finished_entries(operation, operation.cut);
  Chunk chunk{.from = operation.cut, .index = operation.chunks, .at = operation.cut_bytes};
  if (operation.all_cut()) return chunk;
  const Entry& first = entries[chunk.from.entry];
  while (!operation.all_cut() && chunk.bytes < bytes_max && chunk.segments < segments_max) {
    const Entry& entry = entries[operation.cut.entry];
    if (entry.verb != first.verb || !(entry.region == first.region) || entry.device != first.device) break;
    const std::uint64_t bytes =
        std::min({entry.run_at(operation.cut.offset).bytes, bytes_max - chunk.bytes, k_segment_bytes_max});
    chunk.bytes += bytes;
    chunk.segments += 1;
    operation.cut.offset += bytes;
    skip_finished_entries(operation, operation.cut);
  }
  operation.chunks += 1;
  operation.cut_bytes += chunk.bytes;
  return chunk;
}

void fill_segments(const Operation& operation, const Chunk& chunk, std::span<links::Segment> out) noexcept {
  const auto entries = operation.entries();
  Cursor cursor = chunk.from;
  std::uint64_t left = chunk.bytes;
  for (links::Segment& segment : out) {
    skip_finished_entries(operation, cursor);
    HIXL_ASSERT(left > 0 && cursor.entry < entries.size());
    const Entry& entry = entries[cursor.entry];
    const Entry::Run run = entry.run_at(cursor.offset);
    const std::uint64_t bytes = std::min({run.bytes, left, k_segment_bytes_max});
    segment = {.local = run.local, .offset = run.offset, .bytes = static_cast<std::uint32_t>(bytes)};
    cursor.offset += bytes;
    left -= bytes;
  }
  HIXL_ASSERT(left == 0);
}

}  // namespace hixl::peer
