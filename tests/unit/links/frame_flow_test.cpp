// SPDX-License-Identifier: Apache-2.0
//
// FrameStream: system calls, bounds, back-pressure, and sinks that come and go.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "frame_world.hpp"

using namespace hixl;
using namespace hixl::frame_test;

TEST_CASE("frames of one turn leave in one write") {
  World world;
  ByteVector payload(4096, std::byte{7});
  const std::vector<iovec> piece{{payload.data(), payload.size()}};
  for (std::uint64_t i = 0; i < 128; ++i)
    REQUIRE(world.streams[0]->send(header_of(FrameType::write), {}, piece, i + 1));
  world.pair.turn(0);
  CHECK(world.pair.ends[0].out->write_calls == 1);
  CHECK(world.streams[0]->send_calls() == 1);
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].frames.size() == 128);
}

TEST_CASE("many small frames take few reads, and large payload goes straight to its place") {
  World world;
  for (int i = 0; i < 200; ++i) REQUIRE(world.streams[0]->send(header_of(FrameType::ping), {}));
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].frames.size() == 200);
  CHECK(world.pair.ends[0].out->read_calls <= 4);

  Random random(18);
  world.sinks[1].piece_bytes = 1U << 20U;
  const ByteVector payload = random_bytes(random, 1U << 20U);
  const std::vector<iovec> piece{{const_cast<std::byte*>(payload.data()), payload.size()}};
  REQUIRE(world.streams[0]->send(header_of(FrameType::write), {}, piece, 1));
  REQUIRE(world.streams[0]->send(header_of(FrameType::ping), {}));
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].frames.at(200).payload == payload);
  CHECK(world.pair.ends[0].out->largest_read_piece > (1U << 20U) - (32U << 10U));
  CHECK(world.streams[1]->buffered_pieces() == 1);
}

TEST_CASE("the target is asked before every read, and nothing is written once it refuses") {
  Random random(19);
  World world;
  world.pair.ends[0].out->read_max = 5000;
  const ByteVector payload = random_bytes(random, 100'000);
  const std::vector<iovec> piece{{const_cast<std::byte*>(payload.data()), payload.size()}};
  REQUIRE(world.streams[0]->send(header_of(FrameType::write), {}, piece, 1));
  REQUIRE(world.streams[0]->send(header_of(FrameType::ping), {}));
  world.sinks[1].on_bytes = [&] { world.sinks[1].refuse = world.sinks[1].filled >= 30'000; };
  REQUIRE(world.pair.settle());
  REQUIRE(world.sinks[1].frames.size() == 2);
  CHECK(world.sinks[1].target_asked >= 20);
  const ByteVector& got = world.sinks[1].frames[0].payload;
  const std::size_t stopped_at = 36'000;  // 30 000 and at most one read or piece beyond
  CHECK(std::equal(got.begin(), got.begin() + 30'000, payload.begin()));
  CHECK(std::all_of(got.begin() + stopped_at, got.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("want_read holds frames back, also those read already") {
  World world;
  world.sinks[1].on_any = [&] {
    if (world.sinks[1].frames.size() == 2) world.streams[1]->want_read(false);
  };
  for (int i = 0; i < 5; ++i) REQUIRE(world.streams[0]->send(header_of(FrameType::ping), {}));
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].frames.size() == 2);
  world.streams[1]->want_read(true);
  CHECK(world.sinks[1].frames.size() == 2);  // never from inside a call
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].frames.size() == 5);
}

TEST_CASE("want_read may stop and go on at every payload step") {
  Random random(20);
  World world;
  world.pair.ends[0].out->read_max = 777;
  const std::vector<Sample> frames = samples(random);
  const auto pause = [&] { world.streams[1]->want_read(false); };
  world.sinks[1].on_any = pause;
  world.sinks[1].on_bytes = pause;
  send_all(*world.streams[0], frames);
  for (int i = 0; i < 200 && world.sinks[1].frames.size() < frames.size(); ++i) {
    REQUIRE(world.pair.settle());
    world.streams[1]->want_read(true);
  }
  REQUIRE(world.pair.settle());
  check_all(world.sinks[1], frames, frames.size());
}

TEST_CASE("a full queue answers busy without queueing, and on_sendable follows") {
  World world(1000);
  world.pair.ends[0].out->capacity = 0;
  ByteVector body(100);
  std::size_t queued = 0;
  while (world.streams[0]->send(header_of(FrameType::barrier, queued + 1), body)) {
    ++queued;
    REQUIRE(queued < 100);
  }
  CHECK(queued == 6);  // 164 bytes each
  CHECK(!world.streams[0]->room_for(100));
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[0].sendable == 0);
  CHECK(world.streams[0]->send_answer(header_of(FrameType::pong, queued + 1), body));
  world.pair.ends[0].out->capacity = 1U << 20U;
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[0].sendable == 1);
  CHECK(world.streams[0]->room_for(100));
  CHECK(world.sinks[1].frames.size() == queued + 1);
}

TEST_CASE("answers have a reserve with an end") {
  World world(1000);
  world.pair.ends[0].out->capacity = 0;
  ByteVector body(64);
  std::size_t queued = 0;
  while (world.streams[0]->send_answer(header_of(FrameType::nack), body)) REQUIRE(++queued < 10'000);
  CHECK(queued >= 1024);
}

TEST_CASE("a sink that changes in the middle hands the rest to its successor in a later turn") {
  World world;
  Recorder second;
  world.sinks[1].on_any = [&] {
    world.streams[1]->set_sink(nullptr);
    world.streams[1]->set_sink(&second);
    CHECK(second.frames.empty());
  };
  for (int i = 0; i < 3; ++i) REQUIRE(world.streams[0]->send(header_of(FrameType::ping), {}));
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].frames.size() == 1);
  CHECK(second.frames.size() == 2);
}

TEST_CASE("nothing is read or told without a sink; the next one is told of the end") {
  World world;
  world.streams[1]->set_sink(nullptr);
  REQUIRE(world.streams[0]->send(header_of(FrameType::ping), {}));
  REQUIRE(world.pair.settle());
  world.streams[0].reset();
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].frames.empty());
  CHECK(!world.sinks[1].down);
  world.streams[1]->set_sink(&world.sinks[1]);
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].frames.size() == 1);
  CHECK(world.sinks[1].down);
}

TEST_CASE("a sink may destroy the stream from any call") {
  Random random(21);
  const std::vector<Sample> frames = samples(random);
  for (std::size_t nth = 1; nth <= 20; ++nth) {
    CAPTURE(nth);
    World world;
    world.pair.ends[0].out->read_max = 500;
    std::size_t calls = 0;
    const auto destroy = [&] {
      if (++calls == nth) world.streams[1].reset();
    };
    world.sinks[1].on_any = destroy;
    world.sinks[1].on_bytes = destroy;
    send_all(*world.streams[0], frames);
    REQUIRE(world.pair.settle());
    CHECK(calls >= std::min<std::size_t>(nth, 6));
    CHECK(calls <= std::max<std::size_t>(nth, 16));
  }
}

TEST_CASE("payload is not touched any more once the stream is destroyed") {
  World world;
  world.pair.ends[0].out->capacity = 10;
  {
    auto payload = std::make_unique<ByteVector>(10'000, std::byte{1});
    const std::vector<iovec> piece{{payload->data(), payload->size()}};
    REQUIRE(world.streams[0]->send(header_of(FrameType::write), {}, piece, 1));
    world.pair.turn(0);
    world.streams[0].reset();
  }  // a sanitizer sees a late access
  world.pair.ends[0].out->capacity = 1U << 20U;
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].down->code == ErrorCode::truncated_frame);
}

TEST_CASE("one event reads a bounded number of frames, and the rest follows by itself") {
  World world;
  for (int i = 0; i < 150; ++i) REQUIRE(world.streams[0]->send(header_of(FrameType::ping), {}));
  world.pair.turn(0);
  REQUIRE(world.pair.ends[1].stream->deliver());
  CHECK(world.sinks[1].frames.size() == 64);
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].frames.size() == 150);
}
