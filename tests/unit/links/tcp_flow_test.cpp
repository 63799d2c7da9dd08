// SPDX-License-Identifier: Apache-2.0
//
// The tcp link between two honest sides: revocation, fencing, abandoned reads, credit, control, links that end inside
// their own events.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tcp_world.hpp"

using namespace hixl;
using namespace hixl::links;
using namespace hixl::test;

TEST_CASE("F101: a batch of 128 pieces of 4 KiB is one write, and one for what it is answered with") {
  // As the peer posts it: four chunks of 32 pieces that adjoin nowhere, all in one turn.
  constexpr std::size_t k_piece = 4096;
  constexpr std::size_t k_count = 128;
  for (const Verb verb : {Verb::write, Verb::read}) {
    CAPTURE(static_cast<int>(verb));
    TcpWorld world;
    Random random(101);
    ByteVector local = random_bytes(random, 2 * k_count * k_piece);
    const ByteVector before = local;
    Guarded target(k_count * k_piece, std::byte{3});
    const memory::RegionInfo region = world.sides[1].add(target.span());
    const std::uint64_t mine = world.streams[0]->send_calls();
    const std::uint64_t theirs = world.streams[1]->send_calls();
    for (std::size_t chunk = 0; chunk < k_count / wire::k_segments_max; ++chunk) {
      TcpWorld::PostArgs args{.verb = verb, .cookie = chunk + 1, .region = &region, .segments = {}};
      for (std::size_t i = chunk * wire::k_segments_max; i < (chunk + 1) * wire::k_segments_max; ++i) {
        const std::size_t there = (i * 37 % k_count) * k_piece;
        args.segments.push_back({local.data() + 2 * i * k_piece, there, k_piece});
      }
      REQUIRE(world.post(args) == Answer::posted);
    }
    REQUIRE(world.pair.settle());
    CHECK(world.owner().completions.size() == k_count / wire::k_segments_max);
    CHECK(world.streams[0]->send_calls() - mine <= 2);
    CHECK(world.streams[1]->send_calls() - theirs <= 2);
    for (std::size_t i = 0; i < k_count; ++i) {
      const std::byte* const there = target.data() + (i * 37 % k_count) * k_piece;
      REQUIRE(std::memcmp(local.data() + 2 * i * k_piece, there, k_piece) == 0);
      const std::byte* const wanted = verb == Verb::write ? before.data() + 2 * i * k_piece : nullptr;
      if (wanted != nullptr) REQUIRE(std::memcmp(there, wanted, k_piece) == 0);
    }
  }
}

TEST_CASE("revoking a region in the middle of a frame ends the link, and no later byte lands") {
  for (const bool told : {true, false}) {
    CAPTURE(told);
    TcpWorld world;
    world.pair.ends[0].out->read_max = 10'000;
    ByteVector source(100'000, std::byte{0x77});
    Guarded target(100'000);
    Guarded other(4096);
    const memory::RegionInfo region = world.sides[1].add(target.span());
    const memory::RegionInfo bystander = world.sides[1].add(other.span());
    CHECK(world.post({.cookie = 1, .region = &bystander, .segments = {{source.data(), 0, 4096}}}) == Answer::posted);
    CHECK(world.post({.cookie = 2, .region = &region, .segments = {{source.data(), 0, 100'000}}}) == Answer::posted);
    CHECK(world.post({.cookie = 3, .region = &bystander, .segments = {{source.data(), 0, 1}}}) == Answer::posted);
    while (target.span()[0] == std::byte{0}) world.pair.turn(0), world.pair.ends[1].stream->deliver();
    REQUIRE(*world.sides[1].regions->close(region.key));
    if (told) {
      CHECK(world.link(1).revoke(bystander.key));
      CHECK(world.pair.ends[1].stream != nullptr);  // not concerned
      world.owner(1).inside = true;
      CHECK(world.link(1).revoke(region.key));
      world.owner(1).inside = false;
      CHECK(world.pair.ends[1].stream == nullptr);  // closed at once
    }
    const ByteVector then(target.span().begin(), target.span().end());
    CHECK(then.back() == std::byte{0});
    REQUIRE(world.pair.settle());
    CHECK(std::equal(then.begin(), then.end(), target.data()));
    REQUIRE(world.owner(1).down);
    CHECK(world.owner(1).down->code == ErrorCode::link_failed);
    REQUIRE(world.owner().down);
    world.link(1).close();
    CHECK(world.link(1).executed().contains(1));
    CHECK(!world.link(1).executed().contains(2));
    CHECK(!world.link(1).executed().contains(3));
    world.link().close();
    CHECK(world.link().sequence_of(2) == 2);
    CHECK(world.link().sequence_of(3) == 3);
  }
}

TEST_CASE("revoking a region that a queued answer reads from ends the link; once it has left, nothing happens") {
  for (const bool stuck : {true, false}) {
    CAPTURE(stuck);
    TcpWorld world;
    Guarded target(100'000, std::byte{1});
    ByteVector local(100'000);
    const memory::RegionInfo region = world.sides[1].add(target.span());
    if (stuck) world.pair.ends[1].out->capacity = 1000;
    CHECK(world.post({.verb = Verb::read, .cookie = 1, .region = &region, .segments = {{local.data(), 0, 100'000}}}) ==
          Answer::posted);
    world.pair.turn(0);
    for (int i = 0; i < 3; ++i) world.pair.turn(1);
    REQUIRE(*world.sides[1].regions->close(region.key));
    CHECK(world.link(1).revoke(region.key));
    CHECK((world.pair.ends[1].stream == nullptr) == stuck);
    REQUIRE(world.pair.settle());
    CHECK(world.owner(1).down.has_value() == stuck);
    CHECK(world.owner().completions.size() == (stuck ? 0U : 1U));
  }
}

TEST_CASE("closed at any byte, the executed set says exactly what is in memory") {
  constexpr std::size_t k_slots = 12;
  constexpr std::uint32_t k_bytes = 500;
  Random random(35);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    TcpWorld world;
    ByteVector source = random_bytes(random, k_slots * k_bytes);
    Guarded target(k_slots * k_bytes);
    const memory::RegionInfo region = world.sides[1].add(target.span());
    for (std::uint32_t i = 0; i < k_slots; ++i) {
      const std::uint64_t offset = std::uint64_t{k_bytes} * i;
      CHECK(world.post({.cookie = i, .region = &region, .segments = {{source.data() + offset, offset, k_bytes}}}) ==
            Answer::posted);
    }
    world.pair.turn(0);
    Pipe& pipe = *world.pair.ends[0].out;
    const std::size_t stop = random.below(pipe.bytes.size() + 1);
    pipe.bytes.resize(stop);  // the rest is still on its way
    pipe.read_max = 1 + random.below(400);
    while (!pipe.bytes.empty()) world.pair.ends[1].stream->deliver();
    world.link(1).close();
    CHECK(world.link(1).drained());
    world.link(1).close();
    const ByteVector then(target.span().begin(), target.span().end());
    REQUIRE(world.pair.settle());
    CHECK(std::equal(then.begin(), then.end(), target.data()));
    CHECK(!world.owner(1).down);  // no event after close
    world.link().close();
    world.owner().take();
    std::size_t known = 0;
    for (std::uint32_t i = 0; i < k_slots; ++i) {
      const std::size_t offset = std::size_t{k_bytes} * i;
      const bool whole =
          std::equal(source.begin() + static_cast<std::ptrdiff_t>(offset),
                     source.begin() + static_cast<std::ptrdiff_t>(offset + k_bytes), target.data() + offset);
      const bool completed = std::any_of(world.owner().completions.begin(), world.owner().completions.end(),
                                         [&](const Completion& c) { return c.cookie == i; });
      const LinkSeq seq = world.link().sequence_of(i);
      CHECK((seq == 0) == completed);
      CHECK(world.link(1).executed().contains(i + 1) == whole);
      if (completed) CHECK(whole);
      if (whole) ++known;
    }
    CHECK(known == world.link(1).executed().highest);
  }
}

TEST_CASE("an abandoned read leaves its memory alone and gives its slot back") {
  TcpWorld world({.tx_depth = 1});
  Guarded target(100'000, std::byte{9});
  const memory::RegionInfo region = world.sides[1].add(target.span());
  auto local = std::make_unique<Guarded>(100'000);
  const auto read = [&](std::uint64_t cookie, std::byte* to) {
    return world.post({.verb = Verb::read, .cookie = cookie, .region = &region, .segments = {{to, 0, 100'000}}});
  };
  world.pair.ends[1].out->read_max = 30'000;

  SUBCASE("before the answer") { CHECK(read(1, local->data()) == Answer::posted); }
  SUBCASE("in the middle of the answer") {
    CHECK(read(1, local->data()) == Answer::posted);
    while (local->span()[0] == std::byte{0}) {
      world.pair.turn(1);
      world.pair.ends[0].loop.turn();
      if (world.pair.ends[0].stream->deliver()) break;
    }
    CHECK(local->span()[0] == std::byte{9});
    CHECK(local->span().back() == std::byte{0});
  }
  world.owner().inside = true;
  CHECK(world.link().abandon(1));
  world.owner().inside = false;
  CHECK(world.link().sequence_of(1) == 0);
  const ByteVector then(local->span().begin(), local->span().end());
  CHECK(read(2, local->data()) == Answer::busy);  // the slot is taken until the data has come
  REQUIRE(world.pair.settle());
  CHECK(std::equal(then.begin(), then.end(), local->data()));
  CHECK(world.owner().completions.empty());
  CHECK(world.owner().credits == 1);
  CHECK(world.link().traffic().bytes_in == 0);
  CHECK(read(3, local->data()) == Answer::posted);
  CHECK(world.only_code() == ErrorCode::ok);
  CHECK(local->all(std::byte{9}));
}

TEST_CASE("a read that has ended but was not polled can be abandoned; a write cannot") {
  TcpWorld world;
  world.owner().poll_at_once = false;
  Guarded target(64);
  const memory::RegionInfo region = world.sides[1].add(target.span());
  ByteVector local(64);
  CHECK(world.post({.verb = Verb::read, .cookie = 1, .region = &region, .segments = {{local.data(), 0, 64}}}) ==
        Answer::posted);
  REQUIRE(world.pair.settle());
  CHECK(world.link().abandon(1));
  world.owner().take();
  CHECK(world.owner().completions.empty());
  CHECK(world.post({.cookie = 2, .region = &region, .segments = {{local.data(), 0, 64}}}) == Answer::posted);
  CHECK(!world.link().abandon(2));
  REQUIRE(world.pair.settle());
  world.owner().take();
  CHECK(world.owner().completions.size() == 1);
}

TEST_CASE("tx_depth bounds what is in flight; busy is followed by credit") {
  TcpWorld world({.tx_depth = 3});
  world.owner().poll_at_once = false;
  Guarded target(64);
  const memory::RegionInfo region = world.sides[1].add(target.span());
  ByteVector local(64);
  const auto write = [&] { return world.post({.cookie = 1, .region = &region, .segments = {{local.data(), 0, 64}}}); };
  for (int i = 0; i < 3; ++i) CHECK(write() == Answer::posted);
  CHECK(write() == Answer::busy);
  REQUIRE(world.pair.settle());
  CHECK(world.owner().completion_events == 1);
  CHECK(world.owner().credits == 0);
  CHECK(write() == Answer::busy);  // completions that nobody took hold their slots
  world.owner().take();
  CHECK(world.owner().completions.size() == 3);
  REQUIRE(world.pair.settle());
  CHECK(world.owner().credits == 1);
  CHECK(write() == Answer::posted);
  REQUIRE(world.pair.settle());
  CHECK(world.owner().completion_events == 2);
}

TEST_CASE("control frames come in order, take credit, and a ping is answered by the link") {
  TcpWorld world({.rx_depth = 2});
  const ByteVector body(20, std::byte{5});
  CHECK(world.link().send(wire::FrameType::barrier, body));
  CHECK(world.link().send(wire::FrameType::exchange_ack, {}));
  CHECK(!world.link().send(wire::FrameType::barrier, body));
  CHECK(world.link().send(wire::FrameType::ping, body));
  REQUIRE(world.pair.settle());
  REQUIRE(world.owner(1).control.size() == 2);
  CHECK(world.owner(1).control[0].type == wire::FrameType::barrier);
  CHECK(world.owner(1).bodies[0] == body);
  CHECK(world.owner(1).control[1].type == wire::FrameType::exchange_ack);
  REQUIRE(world.owner().control.size() == 1);
  CHECK(world.owner().control[0].type == wire::FrameType::pong);
  CHECK(world.owner().bodies[0] == body);
  CHECK(world.owner().credits == 1);
  CHECK(world.link().send(wire::FrameType::barrier, body));
}

TEST_CASE("a link may be closed or destroyed from inside its events") {
  for (const bool destroy : {false, true}) {
    CAPTURE(destroy);
    TcpWorld world;
    Guarded target(64);
    ByteVector local(64, std::byte{1});
    const memory::RegionInfo region = world.sides[1].add(target.span());
    for (std::size_t i = 0; i < 2; ++i) {
      world.owner(i).on_event = [&world, i, destroy] {
        if (world.owner(i).link == nullptr) return;
        world.link(i).close();
        if (destroy) world.owner(i).link.reset();
      };
    }
    SUBCASE("control") {
      CHECK(world.link().send(wire::FrameType::barrier, {}));
      CHECK(world.link().send(wire::FrameType::barrier, {}));
      REQUIRE(world.pair.settle());
      CHECK(world.owner(1).control.size() == 1);
    }
    SUBCASE("completions") {
      CHECK(world.post({.cookie = 1, .region = &region, .segments = {{local.data(), 0, 64}}}) == Answer::posted);
      REQUIRE(world.pair.settle());
      CHECK(world.owner().completions.size() == 1);
    }
    CHECK((world.pair.ends[0].stream == nullptr || world.pair.ends[1].stream == nullptr));
  }
}

TEST_CASE("both sides stream writes and reads at each other through a narrow pipe without a deadlock") {
  TcpWorld world({.tx_depth = 64});
  for (auto& end : world.pair.ends) end.out->capacity = 2000;
  std::array<ByteVector, 2> memory{ByteVector(64'000), ByteVector(64'000)};
  std::array<ByteVector, 2> local{ByteVector(64'000, std::byte{1}), ByteVector(64'000, std::byte{2})};
  std::array<memory::RegionInfo, 2> regions{world.sides[0].add(memory[0]), world.sides[1].add(memory[1])};
  std::deque<std::array<Segment, 1>> segments;
  for (std::size_t side = 0; side < 2; ++side) {
    const memory::RegionInfo& region = regions[1 - side];
    for (std::uint32_t i = 0; i < 64; ++i) {
      segments.push_back({{{local[side].data() + 1000 * i, 1000 * i, 1000}}});
      CHECK(world.link(side).post({.verb = i % 2 == 0 ? Verb::write : Verb::read,
                                   .cookie = i,
                                   .region = region.key,
                                   .token = region.token,
                                   .local_device = &memory::host_device(),
                                   .segments = segments.back()}) == Answer::posted);
    }
  }
  REQUIRE(world.pair.settle());
  for (std::size_t side = 0; side < 2; ++side) {
    CHECK(world.owner(side).completions.size() == 64);
    CHECK(!world.owner(side).down);
  }
}

TEST_CASE("a read that was taken back and is then refused gives its place to another") {
  TcpWorld w({.tx_depth = 1, .rx_depth = 4, .second = true});
  Guarded target(64);
  Guarded local(64);
  const auto region = w.sides[1].add(target.span(), Rights::write);
  TcpWorld::PostArgs read{
      .verb = links::Verb::read, .cookie = 1, .region = &region, .segments = {{local.data(), 0, 8}}};
  REQUIRE(w.post(read) == links::Answer::posted);
  REQUIRE(w.link().abandon(1));
  read.cookie = 2;
  REQUIRE(w.post(read) == links::Answer::busy);
  REQUIRE(w.pair.settle());
  CHECK(w.owner().credits == 1);
  CHECK(w.owner().completions.empty());
  CHECK(w.post(read) == links::Answer::posted);
}
