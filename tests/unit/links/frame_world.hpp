// SPDX-License-Identifier: Apache-2.0
//
// Two frame streams over a pipe in memory, a sink that records, and frames of every shape.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/random.hpp"
#include "links/frame_stream.hpp"
#include "memory_pipe.hpp"

namespace hixl::frame_test {

using namespace hixl::links;
using hixl::test::PipePair;
using wire::FrameHeader;
using wire::FrameType;

using ByteVector = std::vector<std::byte>;

inline ByteVector random_bytes(Random& random, std::size_t size) {
  ByteVector bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

inline FrameHeader header_of(FrameType type, std::uint64_t op_id = 0, std::uint16_t flags = 0) {
  FrameHeader header;
  header.type = type;
  header.op_id = op_id;
  header.flags = flags;
  return header;
}

/// Records everything; takes payload into `memory` in pieces of `piece_bytes`.
struct Recorder final : FrameSink {
  struct Frame {
    FrameHeader header;
    ByteVector body;
    ByteVector payload;
  };
  void on_frame(const FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) override {
    REQUIRE(!in_payload);
    frames.push_back({header, {body.begin(), body.end()}, {}});
    fd_counts.push_back(fds.size());
    if (on_any) on_any();
  }
  void on_payload_start(const FrameHeader& header, ConstBytes body) override {
    REQUIRE(!in_payload);
    in_payload = true;
    filled = 0;
    memory.assign(header.payload_bytes, std::byte{0});
    started.push_back({header, {body.begin(), body.end()}, {}});
  }
  std::size_t payload_target(std::uint64_t left, std::span<iovec> out) override {
    ++target_asked;
    REQUIRE(in_payload);
    CHECK(left == memory.size() - filled);
    if (refuse) return 0;
    std::size_t count = 0;
    for (std::size_t at = filled; at < memory.size() && count < out.size(); ++count) {
      const std::size_t size = std::min(piece_bytes, memory.size() - at);
      out[count] = {memory.data() + at, size};
      at += size;
    }
    return count;
  }
  void on_payload_bytes(std::size_t bytes) override {
    filled += bytes;
    CHECK(filled <= memory.size());
    if (on_bytes) on_bytes();
  }
  void on_payload_end() override {
    REQUIRE(in_payload);
    CHECK(filled == memory.size());
    in_payload = false;
    started.back().payload = memory;
    frames.push_back(started.back());
    fd_counts.push_back(0);
    if (on_any) on_any();
  }
  void on_sendable() override { ++sendable; }
  void on_sent(std::uint64_t ticket) override { sent.push_back(ticket); }
  void on_down(const Error& error) override {
    REQUIRE(!down);
    down = error;
  }
  std::size_t piece_bytes = 1000;
  bool refuse = false;
  bool in_payload = false;
  std::size_t filled = 0;
  ByteVector memory;
  std::vector<Frame> frames;
  std::vector<Frame> started;
  std::vector<std::size_t> fd_counts;
  std::vector<std::uint64_t> sent;
  std::size_t target_asked = 0;
  std::size_t sendable = 0;
  std::optional<Error> down;
  std::function<void()> on_any;
  std::function<void()> on_bytes;
};

struct World {
  explicit World(std::size_t queued_max = 256U << 10U) {
    for (std::size_t i = 0; i < 2; ++i) {
      streams[i] = std::make_unique<FrameStream>(pair.stream(i), pair.ends[i].loop, queued_max);
      streams[i]->set_sink(&sinks[i]);
    }
  }
  PipePair pair;
  std::array<Recorder, 2> sinks;
  std::array<std::unique_ptr<FrameStream>, 2> streams;
};

struct Sample {
  FrameType type;
  ByteVector body;
  ByteVector payload;
  std::uint16_t flags = 0;
  std::vector<iovec> pieces() const {
    std::vector<iovec> out;
    for (std::size_t at = 0; at < payload.size(); at += 700) {
      out.push_back({const_cast<std::byte*>(payload.data()) + at, std::min<std::size_t>(700, payload.size() - at)});
    }
    return out;
  }
};

inline std::vector<Sample> samples(Random& random) {
  std::vector<Sample> out;
  out.push_back({FrameType::ping, {}, {}});
  out.push_back({FrameType::barrier, random_bytes(random, 17), {}});
  out.push_back({FrameType::write, random_bytes(random, 40), random_bytes(random, 3000)});
  out.push_back({FrameType::write, random_bytes(random, 40), random_bytes(random, 1), wire::k_flag_payload_crc});
  out.push_back({FrameType::exchange, random_bytes(random, 300), {}});
  out.push_back({FrameType::read_data, random_bytes(random, 8), random_bytes(random, 901), wire::k_flag_payload_crc});
  return out;
}

inline void send_all(FrameStream& stream, const std::vector<Sample>& frames) {
  std::uint64_t op_id = 0;
  for (const Sample& frame : frames) {
    REQUIRE(stream.send(header_of(frame.type, ++op_id, frame.flags), frame.body, frame.pieces(), 0));
  }
}

inline void check_all(const Recorder& sink, const std::vector<Sample>& frames, std::size_t count) {
  REQUIRE(sink.frames.size() == count);
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(sink.frames[i].header.type == frames[i].type);
    CHECK(sink.frames[i].header.op_id == i + 1);
    CHECK(sink.frames[i].body == frames[i].body);
    CHECK(sink.frames[i].payload == frames[i].payload);
  }
}

/// The frames as bytes, and where each ends.
struct Encoded {
  ByteVector bytes;
  std::vector<std::size_t> ends;
};
inline Encoded encode_all(const std::vector<Sample>& frames) {
  World world;
  Encoded out;
  std::uint64_t op_id = 0;
  for (const Sample& frame : frames) {
    REQUIRE(world.streams[0]->send(header_of(frame.type, ++op_id, frame.flags), frame.body, frame.pieces(), 0));
    world.streams[0]->flush();
    out.ends.push_back(world.pair.ends[0].out->bytes.size());
  }
  const auto& pipe = world.pair.ends[0].out->bytes;
  out.bytes.assign(pipe.begin(), pipe.end());
  return out;
}

}  // namespace hixl::frame_test
