// SPDX-License-Identifier: Apache-2.0
//
// Payload that changes on its way: with the checksum on it is found, the place is named, nothing is executed, and the
// link goes on; without it the bytes of the protocol are what they always were.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "far_device.hpp"
#include "tcp_world.hpp"
#include "wire/payload_sum.hpp"

using namespace hixl;
using namespace hixl::links;
using namespace hixl::test;
using wire::FrameHeader;
using wire::FrameType;

namespace {

/// Side 0 wants checksums; the other side need not.
TcpWorld::Options checking(bool other = false) { return {.check_payload = {true, other}}; }

/// Damages bit `bit` of the payload `whole` that is under way from that side.
void flip(TcpWorld& world, std::size_t from, ConstBytes whole, std::size_t bit) {
  auto& bytes = world.pair.ends[from].out->bytes;
  const auto found = std::search(bytes.begin(), bytes.end(), whole.begin(), whole.end());
  REQUIRE(found != bytes.end());
  found[static_cast<std::ptrdiff_t>(bit / 8)] ^= static_cast<std::byte>(1U << (bit % 8));
}

/// The one completion that has come.
Completion only(TcpWorld& world) {
  REQUIRE(world.pair.settle());
  REQUIRE(world.owner().completions.size() == 1);
  const Completion completion = world.owner().completions[0];
  world.owner().completions.clear();
  return completion;
}

std::uint64_t address(const std::byte* place) { return reinterpret_cast<std::uint64_t>(place); }

/// What the peer must find on the wire for the first post of a world.
ByteVector expected_write(const memory::RegionInfo& region, ConstBytes payload, std::uint16_t flags) {
  wire::Access access;
  access.region = region.key;
  access.token = region.token;
  access.segment_count = 1;
  access.segments[0] = {16, static_cast<std::uint32_t>(payload.size())};
  std::array<std::byte, 512> buffer;
  ByteWriter writer(buffer);
  encode(access, writer);
  FrameHeader header = Stranger::header(FrameType::write, 1);
  header.flags = flags;
  header.op_id = 1007;
  header.chunk = 3;
  header.attempt = 1;
  header.body_bytes = static_cast<std::uint32_t>(writer.size());
  header.body_crc = wire::crc32c(writer.written());
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = flags != 0 ? wire::crc32c(payload) : 0;
  ByteVector bytes(wire::k_header_bytes);
  encode(header, std::span(bytes).first<wire::k_header_bytes>());
  bytes.insert(bytes.end(), writer.written().begin(), writer.written().end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

}  // namespace

TEST_CASE("F75 every flipped bit of a small write is found and refused with its place; sent again it arrives") {
  constexpr std::size_t k_bytes = 40;
  Random random(31);
  const ByteVector source = random_bytes(random, k_bytes);
  for (std::size_t bit = 0; bit < 8 * k_bytes; ++bit) {
    CAPTURE(bit);
    TcpWorld world(checking());
    Guarded target(256);
    const memory::RegionInfo region = world.sides[1].add(target.span());
    const TcpWorld::PostArgs args{.region = &region,
                                  .segments = {{const_cast<std::byte*>(source.data()), 100, k_bytes}}};
    REQUIRE(world.post(args) == Answer::posted);
    world.pair.turn(0);
    flip(world, 0, source, bit);
    const Completion refused = only(world);
    CHECK(refused.error.code == ErrorCode::payload_corrupt);
    CHECK(refused.error.detail.stage == Stage::transfer);
    CHECK(refused.error.detail.rank == k_identity.rank);
    CHECK(refused.error.detail.address == address(target.data() + 100));
    CHECK(refused.error.detail.length == k_bytes);
    CHECK(refused.error.detail.limit == 100);
    CHECK(!world.link(1).executed().contains(1));
    CHECK(world.link(0).traffic().corrupt == 1);
    CHECK(world.link(1).traffic().corrupt == 1);
    CHECK(world.link(0).traffic().bytes_out == 0);

    REQUIRE(world.post(args) == Answer::posted);
    CHECK(world.only_code() == ErrorCode::ok);
    CHECK(std::equal(source.begin(), source.end(), target.data() + 100));
    CHECK(target.canaries_whole());
    CHECK(!world.owner().down);
    CHECK(!world.owner(1).down);
  }
}

TEST_CASE("F75 every flipped bit of a small read's data is found here, whether or not the peer checks by itself") {
  constexpr std::size_t k_bytes = 24;
  Random random(32);
  const ByteVector source = random_bytes(random, k_bytes);
  for (std::size_t bit = 0; bit < 8 * k_bytes; ++bit) {
    CAPTURE(bit);
    TcpWorld world(checking(bit % 2 == 0));
    Guarded target(256);
    std::copy(source.begin(), source.end(), target.data() + 64);
    const memory::RegionInfo region = world.sides[1].add(target.span());
    Guarded local(k_bytes);
    const TcpWorld::PostArgs args{.verb = Verb::read, .region = &region, .segments = {{local.data(), 64, k_bytes}}};
    REQUIRE(world.post(args) == Answer::posted);
    world.pair.turn(0);
    world.pair.turn(1);
    flip(world, 1, source, bit);
    const Completion refused = only(world);
    CHECK(refused.error.code == ErrorCode::payload_corrupt);
    CHECK(refused.error.detail.address == address(local.data()));
    CHECK(refused.error.detail.length == k_bytes);
    CHECK(refused.error.detail.limit == 64);
    CHECK(world.link(0).traffic().corrupt == 1);
    CHECK(world.link(0).traffic().bytes_in == 0);

    REQUIRE(world.post(args) == Answer::posted);
    CHECK(world.only_code() == ErrorCode::ok);
    CHECK(std::equal(source.begin(), source.end(), local.data()));
    CHECK(local.canaries_whole());
    CHECK(!world.owner().down);
  }
}

TEST_CASE("F75 the answer to a read that was taken back may arrive corrupt") {
  constexpr std::size_t k_bytes = 24;
  Random random(33);
  const ByteVector source = random_bytes(random, k_bytes);
  TcpWorld world(checking());
  Guarded target(64);
  std::copy(source.begin(), source.end(), target.data());
  const memory::RegionInfo region = world.sides[1].add(target.span());
  Guarded local(k_bytes);
  const ByteVector before(local.data(), local.data() + k_bytes);
  TcpWorld::PostArgs args{.verb = Verb::read, .cookie = 1, .region = &region, .segments = {{local.data(), 0, k_bytes}}};
  REQUIRE(world.post(args) == Answer::posted);
  REQUIRE(world.link().abandon(1));
  world.pair.turn(0);
  world.pair.turn(1);
  flip(world, 1, source, 5);
  REQUIRE(world.pair.settle());
  CHECK(world.owner().completions.empty());
  CHECK(!world.owner().down);
  CHECK(std::equal(before.begin(), before.end(), local.data()));
  args.cookie = 2;
  REQUIRE(world.post(args) == Answer::posted);
  CHECK(world.only_code() == ErrorCode::ok);
  CHECK(std::equal(source.begin(), source.end(), local.data()));
}

TEST_CASE("F75 of a long payload the first wrong piece of 64 KiB is named, by the segment in which it begins") {
  constexpr std::size_t k_piece = wire::k_mark_piece_bytes;
  constexpr std::uint32_t k_first = 100'000, k_second = 200'123;
  Random random(33);
  ByteVector source = random_bytes(random, k_first + k_second);
  struct Row {
    std::size_t at;
    std::size_t begins;  // of the piece, in the payload
    std::size_t length;  // within its segment
  };
  const Row rows[] = {{0, 0, k_piece},
                      {k_piece - 1, 0, k_piece},
                      {k_piece, k_piece, k_first - k_piece},
                      {120'000, k_piece, k_first - k_piece},
                      {2 * k_piece, 2 * k_piece, k_piece},
                      {k_first + k_second - 1, 4 * k_piece, k_first + k_second - 4 * k_piece}};
  for (const bool read : {false, true}) {
    for (const Row& row : rows) {
      CAPTURE(read);
      CAPTURE(row.at);
      TcpWorld world(checking());
      Guarded remote(512U << 10U), local(k_first + k_second);
      const memory::RegionInfo region = world.sides[1].add(remote.span());
      Guarded& from = read ? remote : local;
      // The second segment comes first in the region, and an empty one is between them.
      const std::vector<Segment> segments{
          {local.data(), 300'000, k_first}, {nullptr, 7, 0}, {local.data() + k_first, 50, k_second}};
      std::copy_n(source.begin(), k_first, read ? from.data() + 300'000 : from.data());
      std::copy_n(source.begin() + k_first, k_second, read ? from.data() + 50 : from.data() + k_first);
      REQUIRE(world.post({.verb = read ? Verb::read : Verb::write, .region = &region, .segments = segments}) ==
              Answer::posted);
      world.pair.turn(0);
      if (read) world.pair.turn(1);
      flip(world, read ? 1 : 0, source, row.at * 8 + 3);
      const Completion refused = only(world);
      REQUIRE(refused.error.code == ErrorCode::payload_corrupt);
      const bool in_first = row.begins < k_first;
      const std::uint64_t offset = in_first ? 300'000 + row.begins : 50 + row.begins - k_first;
      CHECK(refused.error.detail.limit == offset);
      CHECK(refused.error.detail.length == row.length);
      CHECK(refused.error.detail.address == address(read ? local.data() + row.begins : remote.data() + offset));
      CHECK(!world.owner().down);
    }
  }
}

TEST_CASE("F75 payload that is staged for a device is checked too, in both directions") {
  constexpr std::size_t k_bytes = 300'000;
  for (const Verb verb : {Verb::write, Verb::read}) {
    TcpWorld world(checking());
    Random random(34);
    FarDevice here(k_bytes), there(k_bytes);
    const memory::RegionInfo distant = *world.sides[1].regions->add(FarDevice::address(0), k_bytes, {}, there);
    const ByteVector source = random_bytes(random, k_bytes);
    (verb == Verb::write ? here : there).bytes = source;
    const std::array<Segment, 1> segments{{{FarDevice::address(0), 0, k_bytes}}};
    const Post post{
        .verb = verb, .region = distant.key, .token = distant.token, .local_device = &here, .segments = segments};
    REQUIRE(world.link().post(post) == Answer::posted);
    world.pair.turn(0);
    if (verb == Verb::read) world.pair.turn(1);
    flip(world, verb == Verb::write ? 0 : 1, source, 8 * 70'000);
    const Completion refused = only(world);
    CHECK(refused.error.code == ErrorCode::payload_corrupt);
    CHECK(refused.error.detail.limit == wire::k_mark_piece_bytes);
    REQUIRE(world.link().post(post) == Answer::posted);
    CHECK(world.only_code() == ErrorCode::ok);
    CHECK((verb == Verb::write ? there : here).bytes == source);
  }
}

TEST_CASE("F75 a link on which payload is damaged three times ends as a broken one, with every attempt answered") {
  TcpWorld world(checking());
  Random random(35);
  Guarded target(256);
  const ByteVector source = random_bytes(random, 64);
  const memory::RegionInfo region = world.sides[1].add(target.span());
  for (int i = 1; i <= 3; ++i) {
    CHECK(!world.owner().down);
    REQUIRE(world.post({.region = &region, .segments = {{const_cast<std::byte*>(source.data()), 0, 64}}}) ==
            Answer::posted);
    world.pair.turn(0);
    flip(world, 0, source, 17);
    CHECK(world.only_code() == ErrorCode::payload_corrupt);
  }
  REQUIRE(world.owner().down);
  CHECK(world.owner().down->code == ErrorCode::payload_corrupt);
  CHECK(world.owner().down->detail.link == k_identity.link_id);
  CHECK(world.owner(1).down);
}

TEST_CASE("F75 without the option the bytes on the wire are the old ones; with it only flag, checksums and marks") {
  Random random(36);
  for (const bool check : {false, true}) {
    TcpWorld world({.second = false, .check_payload = {check, false}});
    const memory::RegionInfo region{.key = {5, 6}, .token = {}};
    const ByteVector source = random_bytes(random, 1000);
    REQUIRE(
        world.post({.cookie = 7, .region = &region, .segments = {{const_cast<std::byte*>(source.data()), 16, 1000}}}) ==
        Answer::posted);
    world.pair.turn(0);
    const auto& pipe = world.pair.ends[0].out->bytes;
    CHECK(ByteVector(pipe.begin(), pipe.end()) ==
          expected_write(region, source, static_cast<std::uint16_t>(check ? wire::k_flag_payload_crc : 0)));
  }
  // Answers and reads alike: no flag unless either side wants it.
  for (const bool check : {false, true}) {
    TcpWorld world({.check_payload = {false, check}});
    Guarded target(256), local(256);
    const memory::RegionInfo region = world.sides[1].add(target.span());
    REQUIRE(world.post({.verb = Verb::read, .region = &region, .segments = {{local.data(), 0, 256}}}) ==
            Answer::posted);
    world.pair.turn(0);
    const auto flags_of = [&](std::size_t side, FrameType type) -> int {
      const auto& pipe = world.pair.ends[side].out->bytes;
      for (std::size_t at = 0; at + wire::k_header_bytes <= pipe.size(); ++at) {
        ByteVector bytes(pipe.begin() + static_cast<std::ptrdiff_t>(at),
                         pipe.begin() + static_cast<std::ptrdiff_t>(at + wire::k_header_bytes));
        const auto header = wire::decode_header(std::span(bytes).first<wire::k_header_bytes>());
        if (header && header->type == type) return header->flags;
      }
      return -1;
    };
    CHECK(flags_of(0, FrameType::read) == 0);
    world.pair.turn(1);
    CHECK((flags_of(1, FrameType::read_data) == wire::k_flag_payload_crc) == check);
    CHECK(world.only_code() == ErrorCode::ok);
  }
}

TEST_CASE("a peer that calls corrupt what cannot be loses its link") {
  enum class Case : std::uint8_t { unchecked_write, empty_write, read, signal };
  for (const Case which : {Case::unchecked_write, Case::empty_write, Case::read, Case::signal}) {
    CAPTURE(static_cast<int>(which));
    TcpWorld world({.second = false, .check_payload = {which != Case::unchecked_write, false}});
    Stranger stranger(world);
    Guarded local(64);
    const memory::RegionInfo region{.key = {1, 1}};
    const Verb verb = which == Case::read ? Verb::read : which == Case::signal ? Verb::signal_set : Verb::write;
    const std::uint32_t bytes = which == Case::empty_write ? 0 : 8;
    REQUIRE(world.post({.verb = verb, .region = &region, .segments = {{local.data(), 0, bytes}}}) == Answer::posted);
    REQUIRE(world.pair.settle());
    stranger.send(Stranger::header(FrameType::nack, 0),
                  wire::Nack{.seq = 1, .code = static_cast<std::uint16_t>(ErrorCode::payload_corrupt)});
    REQUIRE(world.pair.settle());
    REQUIRE(world.owner().down);
    CHECK(world.owner().down->code == ErrorCode::malformed_frame);
  }
}

TEST_CASE("a body too short for its marks ends the link; the longest payload passes with all of them") {
  TcpWorld world(checking());
  Random random(37);
  Guarded target(wire::k_payload_bytes_max);
  ByteVector source = random_bytes(random, wire::k_payload_bytes_max);
  const memory::RegionInfo region = world.sides[1].add(target.span());
  world.pair.ends[0].out->capacity = 16U << 20U;
  REQUIRE(world.post({.region = &region, .segments = {{source.data(), 0, wire::k_payload_bytes_max}}}) ==
          Answer::posted);
  CHECK(world.only_code() == ErrorCode::ok);
  CHECK(std::equal(source.begin(), source.end(), target.data()));

  TcpWorld other({.second = false});
  FrameHeader header = Stranger::header(FrameType::write, 1);
  header.flags = wire::k_flag_payload_crc;
  header.body_bytes = 4;
  header.payload_bytes = 5 * wire::k_mark_piece_bytes;
  const ByteVector body(4);
  header.body_crc = wire::crc32c(body);
  ByteVector bytes(wire::k_header_bytes);
  encode(header, std::span(bytes).first<wire::k_header_bytes>());
  bytes.insert(bytes.end(), body.begin(), body.end());
  other.pair.ends[1].out->put(bytes);
  REQUIRE(other.pair.settle());
  REQUIRE(other.owner().down);
  CHECK(other.owner().down->code == ErrorCode::malformed_frame);
}
