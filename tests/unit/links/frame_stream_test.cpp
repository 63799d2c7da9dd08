// SPDX-License-Identifier: Apache-2.0
//
// FrameStream: what goes in at one end comes out at the other, whatever the pieces in which it travels; what is broken
// gives a defined error.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>
#include <numeric>
#include <vector>

#include "frame_world.hpp"

using namespace hixl;
using namespace hixl::frame_test;

TEST_CASE("frames pass whole, however the stream cuts them") {
  Random random(11);
  const std::vector<Sample> frames = samples(random);
  for (const std::size_t step : {std::size_t{1}, std::size_t{3}, std::size_t{63}, std::size_t{64}, std::size_t{65},
                                 std::size_t{1000}, SIZE_MAX}) {
    for (const bool cut_writes : {false, true}) {
      CAPTURE(step);
      CAPTURE(cut_writes);
      World world;
      (cut_writes ? world.pair.ends[0].out->write_max : world.pair.ends[0].out->read_max) = step;
      send_all(*world.streams[0], frames);
      REQUIRE(world.pair.settle());
      check_all(world.sinks[1], frames, frames.size());
      CHECK(!world.sinks[1].down);
    }
  }
}

TEST_CASE("a pipe of a few bytes moves every frame, and every ticket is told once and in order") {
  Random random(12);
  World world;
  world.pair.ends[0].out->capacity = 100;
  std::vector<Sample> frames;
  for (int i = 0; i < 200; ++i) {
    frames.push_back(
        {FrameType::write, random_bytes(random, random.below(200)), random_bytes(random, 1 + random.below(3000))});
  }
  std::vector<std::vector<iovec>> pieces;
  for (const Sample& frame : frames) pieces.push_back(frame.pieces());
  for (std::uint64_t i = 0; i < frames.size(); ++i) {
    REQUIRE(world.streams[0]->send(header_of(FrameType::write, i + 1), frames[i].body, pieces[i], i + 1));
    CHECK(world.streams[0]->holds_ticket(i + 1));
  }
  CHECK(world.sinks[0].sent.empty());
  REQUIRE(world.pair.settle());
  check_all(world.sinks[1], frames, frames.size());
  std::vector<std::uint64_t> expected(frames.size());
  std::iota(expected.begin(), expected.end(), 1U);
  CHECK(world.sinks[0].sent == expected);
  CHECK(!world.streams[0]->holds_ticket(frames.size()));
}

TEST_CASE("a stream that ends at any byte says whether it was inside a frame") {
  Random random(13);
  const std::vector<Sample> frames = samples(random);
  const Encoded encoded = encode_all(frames);
  for (std::size_t length = 0; length <= encoded.bytes.size(); ++length) {
    CAPTURE(length);
    World world;
    world.pair.ends[0].out->put(ConstBytes(encoded.bytes).first(length));
    world.streams[0].reset();
    REQUIRE(world.pair.settle());
    const auto whole = static_cast<std::size_t>(
        std::count_if(encoded.ends.begin(), encoded.ends.end(), [&](std::size_t end) { return end <= length; }));
    check_all(world.sinks[1], frames, whole);
    const bool between = length == 0 || (whole > 0 && encoded.ends[whole - 1] == length);
    REQUIRE(world.sinks[1].down);
    CHECK(world.sinks[1].down->code == (between ? ErrorCode::link_failed : ErrorCode::truncated_frame));
    CHECK(world.sinks[1].down->detail.os_error == 0);
  }
}

TEST_CASE("a failing read at any byte ends the stream with its errno, after the whole frames before it") {
  Random random(14);
  const std::vector<Sample> frames = samples(random);
  const Encoded encoded = encode_all(frames);
  for (std::size_t length = 0; length <= encoded.bytes.size(); length += 7) {
    CAPTURE(length);
    World world;
    world.pair.ends[0].out->put(ConstBytes(encoded.bytes).first(length));
    world.pair.ends[0].out->read_error = ECONNRESET;
    REQUIRE(world.pair.settle());
    const auto whole = static_cast<std::size_t>(
        std::count_if(encoded.ends.begin(), encoded.ends.end(), [&](std::size_t end) { return end <= length; }));
    check_all(world.sinks[1], frames, whole);
    REQUIRE(world.sinks[1].down);
    CHECK(world.sinks[1].down->code == ErrorCode::link_failed);
    CHECK(world.sinks[1].down->detail.os_error == ECONNRESET);
    CHECK(!world.streams[1]->alive());
  }
}

TEST_CASE("a failing write ends the stream; what is sent afterwards is swallowed") {
  World world;
  world.pair.ends[0].out->write_error = EPIPE;
  REQUIRE(world.streams[0]->send(header_of(FrameType::ping), {}));
  world.streams[0]->flush();
  CHECK(!world.sinks[0].down);  // never from inside a call
  REQUIRE(world.pair.settle());
  REQUIRE(world.sinks[0].down);
  CHECK(world.sinks[0].down->code == ErrorCode::link_failed);
  CHECK(world.sinks[0].down->detail.os_error == EPIPE);
  CHECK(world.streams[0]->send(header_of(FrameType::ping), {}));
  REQUIRE(world.pair.settle());
}

TEST_CASE("what the peer said before it left is heard, although a write finds it gone first") {
  for (const int told : {0, 1, 5}) {
    CAPTURE(told);
    World world;
    for (int i = 0; i < told; ++i) {
      REQUIRE(world.streams[1]->send(header_of(FrameType::pong, static_cast<std::uint64_t>(i)), {}));
    }
    world.streams[1]->flush();
    world.streams[1].reset();
    REQUIRE(world.streams[0]->send(header_of(FrameType::ping), {}));
    world.streams[0]->flush();
    CHECK(world.streams[0]->send(header_of(FrameType::ping), {}));  // swallowed
    REQUIRE(world.pair.settle());
    CHECK(world.sinks[0].frames.size() == static_cast<std::size_t>(told));
    REQUIRE(world.sinks[0].down);
    CHECK(world.sinks[0].down->code == ErrorCode::link_failed);
    CHECK(world.sinks[0].down->detail.os_error == EPIPE);
  }
}

TEST_CASE("a peer that reads nothing and sends for ever does not keep a stream alive") {
  World world;
  world.pair.ends[0].out->write_error = EPIPE;
  Random random(23);
  const Sample frame{FrameType::write, random_bytes(random, 100), {}};
  const Encoded encoded = encode_all({frame});
  const auto send_more = [&] { world.pair.ends[1].out->put(ConstBytes(encoded.bytes)); };
  for (int i = 0; i < 1000; ++i) send_more();
  world.sinks[0].on_any = send_more;
  REQUIRE(world.streams[0]->send(header_of(FrameType::ping), {}));
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[0].down);
  CHECK(world.sinks[0].frames.size() < 1000);
}

TEST_CASE("a flipped bit at any byte is an error, and no damaged frame is seen") {
  Random random(15);
  std::vector<Sample> frames = samples(random);
  for (Sample& frame : frames) frame.flags = frame.payload.empty() ? 0 : wire::k_flag_payload_crc;
  const Encoded encoded = encode_all(frames);
  for (std::size_t at = 0; at < encoded.bytes.size(); ++at) {
    CAPTURE(at);
    ByteVector bytes = encoded.bytes;
    bytes[at] ^= static_cast<std::byte>(1U << random.below(8));
    World world;
    world.pair.ends[0].out->put(bytes);
    REQUIRE(world.pair.settle());
    REQUIRE(world.sinks[1].down);
    const ErrorCode code = world.sinks[1].down->code;
    CHECK((code == ErrorCode::malformed_frame || code == ErrorCode::corrupt || code == ErrorCode::version_mismatch));
    const auto whole = static_cast<std::size_t>(
        std::count_if(encoded.ends.begin(), encoded.ends.end(), [&](std::size_t end) { return end <= at; }));
    check_all(world.sinks[1], frames, whole);
  }
}

TEST_CASE("lengths beyond the limits and foreign versions are refused by the header alone") {
  struct Row {
    const char* what;
    std::function<void(FrameHeader&)> change;
    ErrorCode code;
  };
  const std::vector<Row> rows{
      {"body", [](FrameHeader& h) { h.body_bytes = wire::k_body_bytes_max + 1; }, ErrorCode::malformed_frame},
      {"huge body", [](FrameHeader& h) { h.body_bytes = 0xffffffffU; }, ErrorCode::malformed_frame},
      {"payload", [](FrameHeader& h) { h.payload_bytes = wire::k_payload_bytes_max + 1; }, ErrorCode::malformed_frame},
      {"huge payload", [](FrameHeader& h) { h.payload_bytes = 0xffffffffU; }, ErrorCode::malformed_frame},
      {"version", [](FrameHeader& h) { h.version = 2; }, ErrorCode::version_mismatch},
      {"required unknown type", [](FrameHeader& h) { h.type = static_cast<FrameType>(99); },
       ErrorCode::malformed_frame},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    FrameHeader header = header_of(FrameType::ping);
    row.change(header);
    std::array<std::byte, wire::k_header_bytes> bytes;
    encode(header, bytes);
    World world;
    world.pair.ends[0].out->put(bytes);
    REQUIRE(world.pair.settle());
    REQUIRE(world.sinks[1].down);
    CHECK(world.sinks[1].down->code == row.code);
    CHECK(world.sinks[1].frames.empty());
  }
}

TEST_CASE("optional frames of unknown type are skipped, payload included") {
  Random random(16);
  World world;
  const Sample unknown{static_cast<FrameType>(99), random_bytes(random, 100), random_bytes(random, 40'000)};
  REQUIRE(world.streams[0]->send(header_of(unknown.type, 1, wire::k_flag_optional), unknown.body, unknown.pieces(), 0));
  REQUIRE(world.streams[0]->send(header_of(unknown.type, 2, wire::k_flag_optional), unknown.body));
  REQUIRE(world.streams[0]->send(header_of(FrameType::ping, 3), {}));
  REQUIRE(world.pair.settle());
  REQUIRE(world.sinks[1].frames.size() == 1);
  CHECK(world.sinks[1].frames[0].header.op_id == 3);
  CHECK(world.sinks[1].started.empty());
}

TEST_CASE("the longest body passes, and a longer buffer is only kept for it") {
  Random random(17);
  World world;
  for (int round = 0; round < 3; ++round) {
    const ByteVector body = random_bytes(random, wire::k_body_bytes_max);
    REQUIRE(world.streams[0]->send(header_of(FrameType::exchange), body));
    REQUIRE(world.streams[0]->send(header_of(FrameType::ping), {}));
    REQUIRE(world.pair.settle());
    REQUIRE(world.sinks[1].frames.size() == 2U * static_cast<std::size_t>(round) + 2);
    CHECK(world.sinks[1].frames[world.sinks[1].frames.size() - 2].body == body);
  }
}

TEST_CASE("descriptors arrive with their frame, others are closed") {
  World world;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const runtime::Fd read_end(ends[0]);
  const runtime::Fd write_end(ends[1]);
  const std::array<int, 2> fds{read_end.get(), write_end.get()};
  ByteVector body(50, std::byte{3});
  SUBCASE("whole") {}
  SUBCASE("byte by byte") { world.pair.ends[0].out->read_max = 1; }
  SUBCASE("cut") { world.pair.ends[0].out->read_max = 100; }
  REQUIRE(world.streams[0]->send(header_of(FrameType::ping, 1), {}));
  REQUIRE(world.streams[0]->send(header_of(FrameType::hccs_offer, 2), body, fds));
  REQUIRE(world.streams[0]->send(header_of(FrameType::hccs_offer, 3), body, std::span(fds).first(1)));
  REQUIRE(world.streams[0]->send(header_of(FrameType::ping, 4), {}));
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].fd_counts == std::vector<std::size_t>{0, 2, 1, 0});
}

TEST_CASE("a wrong payload checksum ends the stream before the frame counts") {
  Random random(22);
  const std::vector<Sample> frames{
      {FrameType::write, random_bytes(random, 8), random_bytes(random, 50'000), wire::k_flag_payload_crc}};
  Encoded encoded = encode_all(frames);
  encoded.bytes.back() ^= std::byte{1};
  World world;
  world.pair.ends[0].out->put(encoded.bytes);
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].frames.empty());
  REQUIRE(world.sinks[1].down);
  CHECK(world.sinks[1].down->code == ErrorCode::corrupt);
}
