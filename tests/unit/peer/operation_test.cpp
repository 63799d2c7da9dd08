// SPDX-License-Identifier: Apache-2.0
//
// Cutting an operation into chunks, against a list of its bytes one by one.
#include "peer/operation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/random.hpp"

using namespace hixl;
using namespace hixl::peer;

namespace {

/// Where one byte of an operation comes from and goes to.
struct ByteMove {
  TransferVerb verb;
  RegionKey region;
  memory::Device* device;
  const std::byte* local;
  std::uint64_t offset;
  friend bool operator==(const ByteMove&, const ByteMove&) = default;
};

std::vector<ByteMove> reference(const Operation& operation) {
  std::vector<ByteMove> bytes;
  for (const Entry& entry : operation.entries()) {
    // Block by block, as somebody would write it who knows nothing of chunks.
    const std::uint64_t block = entry.block == 0 ? entry.size : entry.block;
    for (std::uint64_t done = 0, index = 0; done < entry.size; done += block, ++index) {
      for (std::uint64_t i = 0; i < block; ++i) {
        bytes.push_back({entry.verb, entry.region, entry.device, entry.local + index * entry.local_stride + i,
                         entry.offset + index * entry.remote_stride + i});
      }
    }
  }
  return bytes;
}

std::vector<links::Segment> segments_of(const Operation& operation, const Chunk& chunk) {
  std::vector<links::Segment> segments(chunk.segments);
  fill_segments(operation, chunk, segments);
  return segments;
}

void draw_batch(Operation& operation, Random& random, std::byte* memory) {
  const std::size_t entries = random.between(1, 12);
  for (std::size_t i = 0; i < entries; ++i) {
    // Few regions, verbs and devices, so that runs of one kind occur as often as their ends.
    Entry entry;
    entry.verb = random.chance(800) ? TransferVerb::put : TransferVerb::get;
    entry.region = {.id = static_cast<std::uint32_t>(random.below(2)), .generation = 1};
    entry.device = random.chance(900) ? &memory::host_device() : nullptr;
    entry.local = memory + random.below(4096);
    entry.offset = random.below(1U << 20U);
    entry.size = random.chance(250) ? 0 : random.between(1, 300);
    if (random.chance(300)) {
      entry.block = random.between(1, 40);
      entry.size = entry.block * random.between(1, 30);
      entry.local_stride = entry.block + random.below(30);
      entry.remote_stride = entry.block + random.below(1U << 20U);
    }
    operation.batch.push_back(entry);
  }
}

}  // namespace

TEST_CASE("chunks cover every byte of a batch exactly once and in order") {
  std::vector<std::byte> memory(8192);
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    INFO("seed ", seed);
    Random random(seed);
    Operation operation;
    draw_batch(operation, random, memory.data());
    const std::uint64_t bytes_max = random.between(1, 400);
    const std::size_t segments_max = random.between(1, wire::k_segments_max);

    std::vector<ByteMove> moved;
    std::vector<Chunk> chunks;
    while (!skip_finished_entries(operation)) {
      const Chunk chunk = cut_chunk(operation, bytes_max, segments_max);
      REQUIRE(chunk.bytes > 0);
      REQUIRE(chunk.bytes <= bytes_max);
      REQUIRE(chunk.segments >= 1);
      REQUIRE(chunk.segments <= segments_max);
      REQUIRE(chunk.index == chunks.size());
      chunks.push_back(chunk);
      const Entry& first = operation.entries()[chunk.from.entry];
      std::uint64_t total = 0;
      for (const links::Segment& segment : segments_of(operation, chunk)) {
        REQUIRE(segment.bytes > 0);
        total += segment.bytes;
        for (std::uint32_t i = 0; i < segment.bytes; ++i) {
          moved.push_back({first.verb, first.region, first.device, segment.local + i, segment.offset + i});
        }
      }
      REQUIRE(total == chunk.bytes);
    }
    REQUIRE(moved == reference(operation));
    REQUIRE(operation.chunks == chunks.size());
    REQUIRE(cut_chunk(operation, bytes_max, segments_max).bytes == 0);
    REQUIRE(operation.chunks == chunks.size());

    // A chunk that comes back is the same again, in any order, after everything was cut.
    std::reverse(chunks.begin(), chunks.end());
    std::vector<ByteMove> again;
    for (const Chunk& chunk : chunks) {
      const Entry& first = operation.entries()[chunk.from.entry];
      const auto segments = segments_of(operation, chunk);
      for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
        for (std::uint32_t i = segment->bytes; i-- > 0;) {
          again.push_back({first.verb, first.region, first.device, segment->local + i, segment->offset + i});
        }
      }
    }
    std::reverse(again.begin(), again.end());
    REQUIRE(again == moved);
  }
}

TEST_CASE("an operation of empty entries has nothing to cut") {
  Operation operation;
  operation.batch.resize(3);
  CHECK(skip_finished_entries(operation));
  CHECK(operation.total_bytes() == 0);
  CHECK(cut_chunk(operation, 100, 4).bytes == 0);
  Operation single;
  CHECK(skip_finished_entries(single));
}

TEST_CASE("a range beyond one frame is cut into pieces that fit the wire") {
  Operation operation;
  operation.single.size = (std::uint64_t{3} << 30U) + 5;
  std::uint64_t total = 0;
  std::uint64_t at = 0;
  while (!skip_finished_entries(operation)) {
    const Chunk chunk = cut_chunk(operation, UINT64_MAX, wire::k_segments_max);
    std::array<links::Segment, wire::k_segments_max> segments;
    fill_segments(operation, chunk, std::span(segments).first(chunk.segments));
    for (const links::Segment& segment : std::span(segments).first(chunk.segments)) {
      REQUIRE(segment.bytes <= wire::k_payload_bytes_max);
      REQUIRE(segment.offset == at);
      at += segment.bytes;
    }
    total += chunk.bytes;
  }
  CHECK(total == operation.single.size);
}

TEST_CASE("F51: a million blocks are one entry, cut without looking at those before") {
  Operation operation;
  constexpr std::uint64_t k_blocks = 1'000'000;
  operation.single.block = 8;
  operation.single.size = 8 * k_blocks;
  operation.single.local_stride = 64;
  operation.single.remote_stride = 8192;
  std::uint64_t block = 0;
  while (!skip_finished_entries(operation)) {
    const Chunk chunk = cut_chunk(operation, 1U << 20U, wire::k_segments_max);
    REQUIRE(chunk.bytes == 8 * std::min<std::uint64_t>(wire::k_segments_max, k_blocks - block));
    for (const links::Segment& segment : segments_of(operation, chunk)) {
      REQUIRE(segment.bytes == 8);
      REQUIRE(segment.offset == 8192 * block);
      REQUIRE(segment.local - operation.single.local == static_cast<std::ptrdiff_t>(64 * block));
      block += 1;
    }
  }
  CHECK(block == k_blocks);
  CHECK(operation.entries().size() == 1);
}

TEST_CASE("a slot that is reset starts a life without memory of the one before") {
  Operation operation;
  operation.batch.resize(2);
  operation.cut = {.entry = 2, .offset = 7};
  operation.live = 3;
  operation.signalled = operation.ending = operation.fencing = true;
  operation.error = Error(ErrorCode::stale);
  operation.signal.wanted = true;
  operation.reset();
  CHECK(operation.entries().size() == 1);
  CHECK(operation.cut.entry == 0);
  CHECK(operation.cut.offset == 0);
  CHECK(operation.live == 0);
  CHECK_FALSE(operation.signalled);
  CHECK_FALSE(operation.ending);
  CHECK_FALSE(operation.fencing);
  CHECK_FALSE(operation.signal.wanted);
  CHECK(operation.error.code == ErrorCode::ok);
}
