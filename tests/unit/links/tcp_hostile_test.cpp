// SPDX-License-Identifier: Apache-2.0
//
// The tcp link against a peer that does not keep to the protocol: each transgression has a defined end, no memory
// outside what was granted is touched, and nothing grows without bound.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tcp_world.hpp"

using namespace hixl;
using namespace hixl::links;
using namespace hixl::test;
using wire::FrameHeader;
using wire::FrameType;

namespace {

struct HostileWorld : TcpWorld {
  HostileWorld() : TcpWorld({.tx_depth = 8, .rx_depth = 4, .second = false}) {}
  [[nodiscard]] wire::Access access(std::vector<wire::WireSegment> segments) const {
    wire::Access access;
    access.region = region.key;
    access.token = region.token;
    access.segment_count = static_cast<std::uint32_t>(segments.size());
    std::copy(segments.begin(), segments.end(), access.segments.begin());
    return access;
  }
  Guarded target{4096};
  memory::RegionInfo region = sides[0].add(target.span());
  Guarded local{4096, std::byte{0x66}};
  memory::RegionInfo theirs{.key = {1, 1}};
  Stranger stranger{*this};
};

FrameHeader first(FrameType type) { return Stranger::header(type, 1); }
FrameHeader plain(FrameType type) { return Stranger::header(type, 0); }

ByteVector encoded(const auto& message) {
  std::array<std::byte, 1024> buffer;
  ByteWriter writer(buffer);
  encode(message, writer);
  return {writer.written().begin(), writer.written().end()};
}

}  // namespace

TEST_CASE("each transgression ends the link with its code and touches nothing") {
  using World = HostileWorld;
  struct Row {
    const char* what;
    std::function<void(World&)> act;
    ErrorCode code = ErrorCode::malformed_frame;
  };
  const ByteVector bytes(100, std::byte{1});
  const auto post = [](World& w, Verb verb) {
    const std::vector<Segment> segments{{w.local.data(), 0, 100}};
    REQUIRE(w.post({.verb = verb, .cookie = 1, .region = &w.theirs, .segments = segments}) == Answer::posted);
    REQUIRE(w.pair.settle());
  };
  const std::vector<Row> rows{
      {"another session",
       [&](World& w) {
         FrameHeader h = first(FrameType::write);
         h.session += 1;
         w.stranger.send(h, w.access({{0, 100}}), bytes);
       }},
      {"an older generation",
       [&](World& w) {
         FrameHeader h = first(FrameType::write);
         h.link_gen -= 1;
         w.stranger.send(h, w.access({{0, 100}}), bytes);
       }},
      {"a gap",
       [&](World& w) {
         w.stranger.send(Stranger::header(FrameType::write, 2), w.access({{0, 100}}), bytes);
       }},
      {"no number",
       [&](World& w) {
         w.stranger.send(plain(FrameType::write), w.access({{0, 100}}), bytes);
       }},
      {"payload shorter than the segments",
       [&](World& w) {
         w.stranger.send(first(FrameType::write), w.access({{0, 101}}), bytes);
       }},
      {"payload longer than the segments",
       [&](World& w) {
         w.stranger.send(first(FrameType::write), w.access({{0, 99}}), bytes);
       }},
      {"payload without segments' bytes",
       [&](World& w) {
         w.stranger.send(first(FrameType::write), w.access({{0, 0}}), bytes);
       }},
      {"segments without payload",
       [&](World& w) {
         w.stranger.send(first(FrameType::write), w.access({{0, 100}}));
       }},
      {"a body that is cut",
       [&](World& w) {
         ByteVector body = encoded(w.access({{0, 100}}));
         body.pop_back();
         w.stranger.send_raw(first(FrameType::write), body, bytes);
       }},
      {"a body with a tail",
       [&](World& w) {
         ByteVector body = encoded(w.access({{0, 100}}));
         body.push_back(std::byte{0});
         w.stranger.send_raw(first(FrameType::read), body);
       }},
      {"an empty write", [&](World& w) { w.stranger.send_raw(first(FrameType::write), {}); }},
      {"an empty read", [&](World& w) { w.stranger.send_raw(first(FrameType::read), {}); }},
      {"an empty signal", [&](World& w) { w.stranger.send_raw(first(FrameType::signal), {}); }},
      {"an empty ack", [&](World& w) { w.stranger.send_raw(plain(FrameType::ack), {}); }},
      {"an empty nack", [&](World& w) { w.stranger.send_raw(plain(FrameType::nack), {}); }},
      {"a range that wraps",
       [&](World& w) {
         w.stranger.send_raw(first(FrameType::write), encoded(w.access({{~std::uint64_t{0} - 10, 100}})), bytes);
       }},
      {"lengths whose sum is huge",
       [&](World& w) {
         w.stranger.send_raw(first(FrameType::read), encoded(w.access({{0, ~0U}, {0, ~0U}, {0, ~0U}})));
       }},
      {"a read with payload",
       [&](World& w) {
         w.stranger.send(first(FrameType::read), w.access({{0, 100}}), bytes);
       }},
      {"control with payload", [&](World& w) { w.stranger.send_raw(first(FrameType::barrier), {}, bytes); }},
      {"ping with payload", [&](World& w) { w.stranger.send_raw(plain(FrameType::ping), {}, bytes); }},
      {"a greeting", [&](World& w) { w.stranger.send_raw(first(FrameType::hello), {}); }},
      {"a frame of the store", [&](World& w) { w.stranger.send_raw(first(FrameType::store_claim), {}); }},
      {"an ack of nothing sent", [&](World& w) { w.stranger.send(plain(FrameType::ack), wire::Ack{1}); }},
      {"an ack of 2^64 - 1", [&](World& w) { w.stranger.send(plain(FrameType::ack), wire::Ack{~LinkSeq{0}}); }},
      {"an ack that goes back",
       [&](World& w) {
         post(w, Verb::write);
         w.stranger.send(plain(FrameType::ack), wire::Ack{1});
         w.stranger.send(plain(FrameType::ack), wire::Ack{0});
       }},
      {"a nack of nothing sent",
       [&](World& w) { w.stranger.send(plain(FrameType::nack), wire::Nack{.seq = 1, .code = 11}); }},
      {"a nack after the ack",
       [&](World& w) {
         post(w, Verb::write);
         w.stranger.send(plain(FrameType::ack), wire::Ack{1});
         w.stranger.send(plain(FrameType::nack), wire::Nack{.seq = 1, .code = 11});
       }},
      {"a nack with an unknown code",
       [&](World& w) {
         post(w, Verb::write);
         w.stranger.send(plain(FrameType::nack), wire::Nack{.seq = 1, .code = 9999});
       }},
      {"a nack that says success",
       [&](World& w) {
         post(w, Verb::write);
         w.stranger.send(plain(FrameType::nack), wire::Nack{.seq = 1, .code = 0});
       }},
      {"data for no read", [&](World& w) { w.stranger.send(plain(FrameType::read_data), wire::ReadData{1}, bytes); }},
      {"data for a write",
       [&](World& w) {
         post(w, Verb::write);
         w.stranger.send(plain(FrameType::read_data), wire::ReadData{1}, bytes);
       }},
      {"too much data",
       [&](World& w) {
         post(w, Verb::read);
         w.stranger.send(plain(FrameType::read_data), wire::ReadData{1}, ByteVector(101));
       }},
      {"too little data",
       [&](World& w) {
         post(w, Verb::read);
         w.stranger.send(plain(FrameType::read_data), wire::ReadData{1}, ByteVector(99));
       }},
      {"no data",
       [&](World& w) {
         post(w, Verb::read);
         w.stranger.send(plain(FrameType::read_data), wire::ReadData{1});
       }},
      {"numbered data",
       [&](World& w) {
         post(w, Verb::read);
         w.stranger.send(first(FrameType::read_data), wire::ReadData{1}, bytes);
       }},
      {"data twice",
       [&](World& w) {
         post(w, Verb::read);
         w.stranger.send(plain(FrameType::read_data), wire::ReadData{1}, ByteVector(100, std::byte{0x66}));
         w.stranger.send(plain(FrameType::read_data), wire::ReadData{1}, bytes);
       }},
      {"bytes that are no frame", [&](World& w) { w.pair.ends[1].out->put(ByteVector(64, std::byte{0x5a})); }},
      {"the end inside a frame",
       [&](World& w) {
         w.pair.ends[1].out->put(ByteVector(1, std::byte{0x48}));
         w.pair.ends[1].out->closed = true;
       },
       ErrorCode::truncated_frame},
      {"the end", [&](World& w) { w.pair.ends[1].out->closed = true; }, ErrorCode::link_failed},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    HostileWorld world;
    row.act(world);
    REQUIRE(world.pair.settle());
    REQUIRE(world.owner().down);
    CHECK(world.owner().down->code == row.code);
    CHECK(world.owner().down->detail.rank == k_identity.rank);
    CHECK(world.pair.ends[0].stream == nullptr);
    CHECK(world.target.all(std::byte{0}));
    CHECK(world.target.canaries_whole());
    CHECK(world.local.all(std::byte{0x66}));
    CHECK(world.local.canaries_whole());
    CHECK(world.post({.cookie = 2, .region = &world.theirs, .segments = {{world.local.data(), 0, 1}}}) == Answer::busy);
    CHECK(!world.link().send(FrameType::barrier, {}));
  }
}

TEST_CASE("a replayed frame is not applied twice") {
  HostileWorld world;
  const wire::SignalBody add{
      .region = world.region.key, .token = world.region.token, .offset = 0, .value = 5, .add = 1};
  world.stranger.send(first(FrameType::signal), add);
  world.stranger.send(first(FrameType::signal), add);
  REQUIRE(world.pair.settle());
  CHECK(memory::load_word(memory::host_device(), world.target.data()) == 5);
  REQUIRE(world.owner().down);
  CHECK(world.owner().down->code == ErrorCode::malformed_frame);
}

TEST_CASE("an acknowledgement of bytes that have not left is not believed, since the source would be freed") {
  for (const FrameType type : {FrameType::ack, FrameType::nack}) {
    HostileWorld world;
    world.pair.ends[0].out->capacity = 50;
    REQUIRE(world.post({.cookie = 1, .region = &world.theirs, .segments = {{world.local.data(), 0, 4096}}}) ==
            Answer::posted);
    world.pair.turn(0);
    if (type == FrameType::ack) {
      world.stranger.send(plain(type), wire::Ack{1});
    } else {
      world.stranger.send(plain(type), wire::Nack{.seq = 1, .code = 11});
    }
    world.stranger.stream().want_read(false);
    world.pair.turn(1);
    REQUIRE(world.pair.settle());
    CHECK(world.owner().completions.empty());
    REQUIRE(world.owner().down);
    CHECK(world.owner().down->code == ErrorCode::malformed_frame);
  }
}

TEST_CASE("a peer that asks and never reads is cut off with bounded memory") {
  for (const FrameType type : {FrameType::read, FrameType::write, FrameType::ping}) {
    CAPTURE(static_cast<int>(type));
    HostileWorld world;
    world.pair.ends[0].out->capacity = 0;
    world.pair.ends[1].out->capacity = 64U << 20U;
    wire::Access refused = world.access({{5000, 0}});
    for (LinkSeq seq = 1; seq <= 20'000; ++seq) {
      if (type == FrameType::read) world.stranger.send(Stranger::header(type, seq), world.access({{0, 4096}}));
      if (type == FrameType::write) world.stranger.send(Stranger::header(type, seq), refused);
      if (type == FrameType::ping) world.stranger.send_raw(plain(type), ByteVector(100));
    }
    REQUIRE(world.pair.settle());
    if (type == FrameType::ping) {
      CHECK(!world.owner().down);  // probes beyond the reserve are simply not answered
    } else {
      REQUIRE(world.owner().down);
      CHECK(world.owner().down->code == ErrorCode::limit_reached);
    }
  }
}

TEST_CASE("an honest peer's 1024 unread answers fit") {
  HostileWorld world;
  world.pair.ends[0].out->capacity = 0;
  for (LinkSeq seq = 1; seq <= 1024; ++seq) {
    if (seq % 2 == 0) {
      world.stranger.send(Stranger::header(FrameType::read, seq), world.access({{0, 4096}}));
    } else {
      world.stranger.send(Stranger::header(FrameType::write, seq), world.access({{5000, 0}}));
    }
  }
  REQUIRE(world.pair.settle());
  CHECK(!world.owner().down);
  world.pair.ends[0].out->capacity = 1U << 20U;
  REQUIRE(world.pair.settle());
  CHECK(world.stranger.count(FrameType::read_data) == 512);
  CHECK(world.stranger.count(FrameType::nack) == 512);
  CHECK(world.stranger.headers.back().type == FrameType::ack);
}

TEST_CASE("random bytes after a good beginning never do more than end the link") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    HostileWorld world;
    for (LinkSeq seq = 1; seq <= 1 + random.below(4); ++seq) {
      FrameHeader header = Stranger::header(static_cast<FrameType>(random.below(60)), random.chance(500) ? seq : 0);
      header.flags = static_cast<std::uint16_t>(random.below(4));
      ByteVector body =
          random.chance(500)
              ? encoded(world.access({{random.below(6000), static_cast<std::uint32_t>(random.below(200))}}))
              : random_bytes(random, random.below(100));
      if (!body.empty() && random.chance(300)) body[random.below(body.size())] ^= std::byte{1};
      world.stranger.send_raw(header, body, random_bytes(random, random.below(200)));
    }
    REQUIRE(world.pair.settle());
    CHECK(world.target.canaries_whole());
    CHECK(world.local.all(std::byte{0x66}));
  }
}

TEST_CASE("an acknowledgement says that a read was received, not that its data is here") {
  HostileWorld world;
  REQUIRE(world.post(
              {.verb = Verb::read, .cookie = 1, .region = &world.theirs, .segments = {{world.local.data(), 0, 100}}}) ==
          Answer::posted);
  REQUIRE(world.pair.settle());
  world.stranger.send(plain(FrameType::ack), wire::Ack{1});
  REQUIRE(world.pair.settle());
  CHECK(world.owner().completions.empty());
  world.stranger.send(plain(FrameType::read_data), wire::ReadData{1}, ByteVector(100, std::byte{7}));
  CHECK(world.only_code() == ErrorCode::ok);
  CHECK(world.local.data()[99] == std::byte{7});
}
