// SPDX-License-Identifier: Apache-2.0
//
// The tcp link between two honest sides: bytes, signals, refusals.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "far_device.hpp"
#include "tcp_world.hpp"

using namespace hixl;
using namespace hixl::links;
using namespace hixl::test;

namespace {

std::uint64_t word_of(std::span<std::byte> memory, std::size_t offset) {
  return memory::load_word(memory::host_device(), memory.data() + offset);
}

}  // namespace

TEST_CASE("writes and reads of every size arrive whole and touch nothing beside") {
  Random random(31);
  for (const std::size_t read_max : {std::size_t{777}, std::size_t{60'000}, SIZE_MAX}) {
    for (const std::uint32_t size : {0U, 1U, 13U, 4096U, 65'536U, 1U << 20U}) {
      if (read_max == 777 && size > 65'536U) continue;
      CAPTURE(read_max);
      CAPTURE(size);
      TcpWorld world;
      world.pair.ends[0].out->read_max = read_max;
      world.pair.ends[1].out->read_max = read_max;
      ByteVector source = random_bytes(random, size);
      Guarded target(size + 16);
      const memory::RegionInfo region = world.sides[1].add(target.span());
      CHECK(world.post({.cookie = 1, .region = &region, .segments = {{source.data(), 8, size}}}) == Answer::posted);
      CHECK(world.only_code() == ErrorCode::ok);
      CHECK(std::equal(source.begin(), source.end(), target.data() + 8));
      CHECK(target.canaries_whole());
      CHECK(std::all_of(target.data(), target.data() + 8, [](std::byte b) { return b == std::byte{0}; }));
      CHECK(world.link().traffic().bytes_out == size);

      Guarded back(size);
      CHECK(world.post({.verb = Verb::read, .cookie = 2, .region = &region, .segments = {{back.data(), 8, size}}}) ==
            Answer::posted);
      CHECK(world.only_code() == ErrorCode::ok);
      CHECK(std::equal(source.begin(), source.end(), back.data()));
      CHECK(back.canaries_whole());
      CHECK(world.link().traffic().bytes_in == size);
      CHECK(world.link(1).executed().contains(1));
      CHECK(world.link(1).executed().contains(2));
    }
  }
}

TEST_CASE("32 segments are scattered and gathered, empty ones among them") {
  Random random(32);
  for (const std::size_t read_max : {std::size_t{1}, std::size_t{100}, SIZE_MAX}) {
    CAPTURE(read_max);
    TcpWorld world;
    world.pair.ends[0].out->read_max = read_max;
    world.pair.ends[1].out->read_max = read_max;
    ByteVector source = random_bytes(random, 32 * 300);
    ByteVector back(source.size());
    Guarded target(32 * 400);
    ByteVector expected(32 * 400);
    const memory::RegionInfo region = world.sides[1].add(target.span());
    std::vector<Segment> out;
    std::vector<Segment> in;
    for (std::uint32_t i = 0; i < 32; ++i) {
      const auto size = i % 7 == 3 ? 0U : static_cast<std::uint32_t>(random.between(1, 300));
      const std::uint64_t offset = 400 * (31 - i) + random.below(100);
      out.push_back({source.data() + 300 * i, offset, size});
      in.push_back({back.data() + 300 * i, offset, size});
      std::copy_n(source.begin() + 300 * i, size, expected.begin() + static_cast<std::ptrdiff_t>(offset));
      std::fill_n(source.begin() + 300 * i + size, 300 - size, std::byte{0});
    }
    CHECK(world.post({.cookie = 1, .region = &region, .segments = out}) == Answer::posted);
    CHECK(world.only_code() == ErrorCode::ok);
    CHECK(std::equal(expected.begin(), expected.end(), target.data()));
    CHECK(world.post({.verb = Verb::read, .cookie = 2, .region = &region, .segments = in}) == Answer::posted);
    CHECK(world.only_code() == ErrorCode::ok);
    CHECK(back == source);
    CHECK(target.canaries_whole());
  }
}

TEST_CASE("signals set and add one word, once each") {
  TcpWorld world;
  alignas(8) std::array<std::byte, 64> memory{};
  const memory::RegionInfo region = world.sides[1].add(memory);
  const auto signal = [&](Verb verb, std::uint64_t offset, std::uint64_t value) {
    CHECK(world.post(
              {.verb = verb, .cookie = 1, .region = &region, .segments = {{nullptr, offset, 8}}, .value = value}) ==
          Answer::posted);
    return world.only_code();
  };
  CHECK(signal(Verb::signal_set, 16, 40) == ErrorCode::ok);
  CHECK(word_of(memory, 16) == 40);
  CHECK(signal(Verb::signal_add, 16, 2) == ErrorCode::ok);
  CHECK(word_of(memory, 16) == 42);
  CHECK(signal(Verb::signal_add, 16, ~std::uint64_t{0}) == ErrorCode::ok);
  CHECK(word_of(memory, 16) == 41);
  CHECK(word_of(memory, 8) == 0);
  CHECK(word_of(memory, 24) == 0);
  CHECK(signal(Verb::signal_set, 20, 1) == ErrorCode::unaligned);
  CHECK(signal(Verb::signal_set, 57, 1) == ErrorCode::out_of_range);
  CHECK(word_of(memory, 16) == 41);
  CHECK(word_of(memory, 56) == 0);
  CHECK(!world.owner().down);
}

TEST_CASE("what may not be done is refused by name, and not one byte is touched") {
  Random random(33);
  TcpWorld world;
  Guarded target(4096, std::byte{0x11});
  Guarded read_only(4096, std::byte{0x22});
  Guarded write_only(4096, std::byte{0x33});
  Guarded gone(4096, std::byte{0x44});
  const memory::RegionInfo region = world.sides[1].add(target.span());
  const memory::RegionInfo reads = world.sides[1].add(read_only.span(), Rights::read);
  const memory::RegionInfo writes = world.sides[1].add(write_only.span(), Rights::write);
  const memory::RegionInfo closed = world.sides[1].add(gone.span());
  REQUIRE(*world.sides[1].regions->close(closed.key));
  memory::RegionInfo bad_token = region;
  bad_token.token.low ^= 1;
  memory::RegionInfo older = region;
  older.key.generation += 1;
  memory::RegionInfo unknown = region;
  unknown.key.id = 1'000'000;
  Guarded local(8192, std::byte{0x55});

  struct Row {
    const char* what;
    Verb verb;
    const memory::RegionInfo* region;
    std::vector<Segment> segments;
    ErrorCode code;
  };
  std::byte* const at = local.data();
  const std::vector<Row> rows{
      {"write beyond the end", Verb::write, &region, {{at, 4000, 97}}, ErrorCode::out_of_range},
      {"write behind the end", Verb::write, &region, {{at, 5000, 1}}, ErrorCode::out_of_range},
      {"write far behind", Verb::write, &region, {{at, ~std::uint64_t{0} - 4096, 4096}}, ErrorCode::out_of_range},
      {"second segment beyond", Verb::write, &region, {{at, 0, 100}, {at, 4096, 1}}, ErrorCode::out_of_range},
      {"read beyond the end", Verb::read, &region, {{at, 1, 4096}}, ErrorCode::out_of_range},
      {"write by a wrong token", Verb::write, &bad_token, {{at, 0, 100}}, ErrorCode::access_denied},
      {"read by a wrong token", Verb::read, &bad_token, {{at, 0, 100}}, ErrorCode::access_denied},
      {"write into another generation", Verb::write, &older, {{at, 0, 100}}, ErrorCode::stale},
      {"write into a closed region", Verb::write, &closed, {{at, 0, 100}}, ErrorCode::stale},
      {"read from a closed region", Verb::read, &closed, {{at, 0, 100}}, ErrorCode::stale},
      {"signal into a closed region", Verb::signal_add, &closed, {{nullptr, 0, 8}}, ErrorCode::stale},
      {"write into an unknown region", Verb::write, &unknown, {{at, 0, 100}}, ErrorCode::stale},
      {"write without the right", Verb::write, &reads, {{at, 0, 100}}, ErrorCode::access_denied},
      {"signal without the right", Verb::signal_set, &reads, {{nullptr, 0, 8}}, ErrorCode::access_denied},
      {"read without the right", Verb::read, &writes, {{at, 0, 100}}, ErrorCode::access_denied},
      {"write of nothing beyond the end", Verb::write, &region, {{at, 4097, 0}}, ErrorCode::out_of_range},
  };
  LinkSeq seq = 0;
  for (const Row& row : rows) {
    CAPTURE(row.what);
    CHECK(world.post({.verb = row.verb, .cookie = 5, .region = row.region, .segments = row.segments, .value = 99}) ==
          Answer::posted);
    CHECK(world.only_code() == row.code);
    CHECK(!world.link(1).executed().contains(++seq));
    CHECK(world.link(1).executed().highest == seq);
  }
  CHECK(!world.owner().down);
  CHECK(!world.owner(1).down);
  CHECK(target.all(std::byte{0x11}));
  CHECK(read_only.all(std::byte{0x22}));
  CHECK(write_only.all(std::byte{0x33}));
  CHECK(gone.all(std::byte{0x44}));
  CHECK(local.all(std::byte{0x55}));
  CHECK(world.post({.cookie = 6, .region = &region, .segments = {{at, 0, 4096}}}) == Answer::posted);
  CHECK(world.only_code() == ErrorCode::ok);
  CHECK(target.all(std::byte{0x55}));
}

TEST_CASE("a refusal carries where, what and the limit") {
  TcpWorld world;
  Guarded target(4096);
  ByteVector source(200);
  const memory::RegionInfo region = world.sides[1].add(target.span());
  CHECK(world.post({.cookie = 1, .region = &region, .segments = {{source.data(), 4000, 200}}}) == Answer::posted);
  REQUIRE(world.pair.settle());
  REQUIRE(world.owner().completions.size() == 1);
  const auto here = world.sides[1].regions->check(region.key, region.token, 4000, 200, Rights::write);
  REQUIRE(!here);
  const Error& error = world.owner().completions[0].error;
  CHECK(error.detail.rank == k_identity.rank);
  CHECK(error.detail.link == k_identity.link_id);
  CHECK(error.detail.stage == Stage::remote_check);
  CHECK(error.detail.address == here.error().detail.address);
  CHECK(error.detail.length == here.error().detail.length);
  CHECK(error.detail.nearest_base == here.error().detail.nearest_base);
  CHECK(error.detail.nearest_length == here.error().detail.nearest_length);
  CHECK(error.detail.limit == here.error().detail.limit);
}

TEST_CASE("memory that no socket reaches passes through a buffer of bounded size, by its device") {
  constexpr std::size_t k_bytes = 1U << 20U;
  constexpr std::size_t k_incoming_bytes = 256U << 10U;
  TcpWorld world;
  Random random(5);
  FarDevice here(k_bytes), there(k_bytes);
  const memory::RegionInfo distant = *world.sides[1].regions->add(FarDevice::address(0), k_bytes, {}, there);
  here.bytes = random_bytes(random, k_bytes);
  const std::array<Segment, 3> segments{{{FarDevice::address(0), 300'000, 700'000},
                                         {FarDevice::address(700'000), 0, 7},
                                         {FarDevice::address(700'007), 7, 293}}};
  const auto post = [&](Verb verb, std::uint64_t cookie) {
    return world.link().post({.verb = verb,
                              .cookie = cookie,
                              .region = distant.key,
                              .token = distant.token,
                              .local_device = &here,
                              .segments = segments});
  };
  CHECK(post(Verb::write, 1) == Answer::posted);
  CHECK(world.only_code() == ErrorCode::ok);
  CHECK(std::equal(here.bytes.begin(), here.bytes.begin() + 700'000, there.bytes.begin() + 300'000));
  CHECK(std::equal(here.bytes.begin() + 700'000, here.bytes.begin() + 700'300, there.bytes.begin()));
  CHECK(there.bytes[300] == std::byte{0});
  CHECK(here.reads == 3);
  CHECK(there.writes >= 5);  // 700 KB by 256 KiB, and two small ones
  CHECK(world.link(1).traffic().staging_bytes == k_incoming_bytes);
  CHECK(world.link(0).traffic().copies >= 3);
  CHECK(world.link(1).traffic().copies >= 5);

  const ByteVector before = here.bytes;
  std::fill(here.bytes.begin(), here.bytes.end(), std::byte{0});
  CHECK(post(Verb::read, 2) == Answer::posted);
  CHECK(world.only_code() == ErrorCode::ok);
  CHECK(std::equal(before.begin(), before.begin() + 700'300, here.bytes.begin()));
  CHECK(here.bytes[700'300] == std::byte{0});

  // Two posts are staged at a time; the third waits for credit, which comes when one has left.
  CHECK(post(Verb::write, 3) == Answer::posted);
  CHECK(post(Verb::write, 4) == Answer::posted);
  CHECK(post(Verb::write, 5) == Answer::busy);
  const std::size_t credits = world.owner().credits;
  REQUIRE(world.pair.settle());
  CHECK(world.owner().credits > credits);
  CHECK(world.owner().completions.size() == 2);
  world.owner().completions.clear();
  CHECK(post(Verb::write, 6) == Answer::posted);
  CHECK(world.only_code() == ErrorCode::ok);
  // Reads beyond the buffers of the target wait there.
  for (std::uint64_t cookie = 10; cookie < 20; ++cookie) CHECK(post(Verb::read, cookie) == Answer::posted);
  REQUIRE(world.pair.settle());
  CHECK(world.owner().completions.size() == 10);
  CHECK(world.link(1).traffic().staging_bytes <= k_incoming_bytes + 2 * k_bytes);
  CHECK(world.link(0).traffic().staging_bytes <= k_incoming_bytes + 2 * k_bytes);
}

TEST_CASE("a post batch leaves in one write, and a large payload is hardly copied") {
  TcpWorld world({.tx_depth = 128});
  Guarded target(1U << 20U);
  ByteVector source(1U << 20U, std::byte{1});
  const memory::RegionInfo region = world.sides[1].add(target.span());
  for (std::uint32_t i = 0; i < 128; ++i) {
    CHECK(world.post({.cookie = i, .region = &region, .segments = {{source.data() + 4096 * i, 4096 * i, 4096}}}) ==
          Answer::posted);
  }
  world.pair.turn(0);
  CHECK(world.pair.ends[0].out->write_calls == 1);
  REQUIRE(world.pair.settle());
  CHECK(world.owner().completions.size() == 128);
  CHECK(world.pair.ends[1].out->write_calls <= 4);  // acknowledgements, once a turn
  const std::uint64_t copies = world.link(1).traffic().copies;
  CHECK(world.post({.cookie = 200, .region = &region, .segments = {{source.data(), 0, 1U << 20U}}}) == Answer::posted);
  CHECK((world.pair.settle(), world.link(1).traffic().copies - copies) == 1);
}
