// SPDX-License-Identifier: Apache-2.0
//
// The cross-memory link between two healthy ranks: bytes, holes in memory, revocation and close.
#include <thread>

#include <doctest/doctest.h>

#include "pcie_world.hpp"

using namespace hixl;
using namespace hixl::pcie_test;
using links::Answer;
using links::Post;
using links::Segment;
using links::Verb;

namespace {

constexpr std::size_t k_page = 4096;
constexpr std::size_t k_large = 16U << 20U;

Post post_of(Verb verb, std::uint64_t cookie, const memory::RegionInfo& region, const Segment& segment) {
  Post post;
  post.verb = verb;
  post.cookie = cookie;
  post.region = region.key;
  post.token = region.token;
  post.segments = std::span(&segment, 1);
  return post;
}

void wait_for_first_byte(const Plain& memory) {
  while (*reinterpret_cast<volatile std::byte*>(memory.data()) == std::byte{0}) std::this_thread::yield();
}

bool all_equal(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte byte) { return byte == value; });
}

}  // namespace

TEST_CASE("pcie: put and get of many sizes, from and to memory that nobody maps") {
  World world;
  constexpr std::size_t k_guard = 64;
  const Plain memory(k_large + 2 * k_page);
  const auto region = world.shared(memory);
  std::uint64_t moved = 0;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{13}, k_page, std::size_t{65536},
                                  std::size_t{65537}, (std::size_t{1} << 20U) + 1, k_large}) {
    CAPTURE(bytes);
    std::fill_n(memory.data(), bytes + 2 * k_guard, std::byte{0});
    auto source = pattern(bytes, bytes + 1);
    const auto count = static_cast<std::uint32_t>(bytes);
    CHECK(world.run(Verb::write, region, {source.data(), k_guard, count}).code == ErrorCode::ok);
    CHECK(std::equal(source.begin(), source.end(), memory.data() + k_guard));
    CHECK(memory.data()[k_guard - 1] == std::byte{0});
    CHECK(memory.data()[k_guard + bytes] == std::byte{0});
    std::vector<std::byte> back(bytes);
    CHECK(world.run(Verb::read, region, {back.data(), k_guard, count}).code == ErrorCode::ok);
    CHECK(back == source);
    moved += bytes;
  }
  CHECK(world.a->link->traffic().bytes_out == moved);
  CHECK(world.a->link->traffic().bytes_in == moved);
  CHECK(world.a->link->traffic().copies == 0);
}

TEST_CASE("pcie: many segments in one post, short and long, one of them across calls") {
  World world;
  const Plain memory(8U << 20U);
  const auto region = world.shared(memory);
  for (const std::uint32_t bytes : {100U, 50'000U, 100'001U}) {
    CAPTURE(bytes);
    auto source = pattern(wire::k_segments_max * bytes, bytes);
    std::vector<Segment> segments;
    for (std::uint32_t i = 0; i < wire::k_segments_max; ++i) {
      segments.push_back({source.data() + i * bytes, std::uint64_t{i} * (bytes + 7), bytes});
    }
    REQUIRE(world.run(Verb::write, region, segments).code == ErrorCode::ok);
    for (const Segment& segment : segments) {
      REQUIRE(std::equal(segment.local, segment.local + segment.bytes, memory.data() + segment.offset));
    }
    std::vector<std::byte> back(source.size());
    auto reads = segments;
    for (Segment& segment : reads) segment.local = back.data() + (segment.local - source.data());
    REQUIRE(world.run(Verb::read, region, reads).code == ErrorCode::ok);
    CHECK(back == source);
  }
}

TEST_CASE("S9 pcie: memory unmapped under its registration: an error that names the place, and nothing else breaks") {
  World world;
  for (const std::size_t bytes : {4 * k_page, std::size_t{2} << 20U}) {
    CAPTURE(bytes);
    const Plain memory(bytes);
    const auto region = world.shared(memory);
    const auto base = reinterpret_cast<std::uint64_t>(memory.data());
    const std::uint64_t hole = bytes - 2 * k_page;
    std::vector<std::byte> local(bytes, std::byte{7});
    const Segment whole{local.data(), 0, static_cast<std::uint32_t>(bytes)};
    SUBCASE("a hole") { REQUIRE(::munmap(memory.data() + hole, k_page) == 0); }
    SUBCASE("not readable") { REQUIRE(::mprotect(memory.data() + hole, k_page, PROT_NONE) == 0); }
    for (const Verb verb : {Verb::write, Verb::read}) {
      const Error error = world.run(verb, region, whole);
      CHECK(error.code == ErrorCode::memory_unmapped);
      CHECK(error.detail.stage == Stage::remote_check);
      CHECK(error.detail.rank == 1);
      CHECK(error.detail.address == base + hole);
      CHECK(error.detail.length == bytes - hole);
      CHECK(error.detail.nearest_base == base);
      CHECK(error.detail.nearest_length == bytes);
    }
    CHECK(world.run(Verb::write, region, {local.data(), 0, static_cast<std::uint32_t>(hole)}).code == ErrorCode::ok);
    CHECK(world.run(Verb::write, region, {local.data(), hole + k_page, k_page}).code == ErrorCode::ok);
  }
  CHECK(world.a->record.down == 0);
}

TEST_CASE("P26 pcie: a put into memory that is mapped for reading only is refused, a get is not") {
  World world;
  const Plain memory(k_page);
  const auto region = world.shared(memory);
  REQUIRE(::mprotect(memory.data(), k_page, PROT_READ) == 0);
  std::byte byte{1};
  const Error error = world.run(Verb::write, region, {&byte, 5, 1});
  CHECK(error.code == ErrorCode::memory_unmapped);
  CHECK(error.detail.address == reinterpret_cast<std::uint64_t>(memory.data()) + 5);
  CHECK(world.run(Verb::read, region, {&byte, 5, 1}).code == ErrorCode::ok);
  CHECK(byte == std::byte{0});
}

TEST_CASE("pcie: local memory that is gone is told apart from the peer's") {
  World world;
  const Plain memory(2 * k_page), local(2 * k_page);
  const auto region = world.shared(memory);
  REQUIRE(::munmap(local.data() + k_page, k_page) == 0);
  for (const Verb verb : {Verb::write, Verb::read}) {
    const Error error = world.run(verb, region, {local.data(), 0, 2 * k_page});
    CHECK(error.code == ErrorCode::memory_unmapped);
    CHECK(error.detail.stage == Stage::local_check);
    CHECK(error.detail.address == reinterpret_cast<std::uint64_t>(local.data()) + k_page);
  }
  CHECK(world.a->record.down == 0);
}

TEST_CASE("P25 pcie: a closed region refuses short and long posts, whatever lies there now") {
  World world;
  const Plain memory(1U << 20U);
  const auto region = world.shared(memory);
  REQUIRE(*world.b->regions->close(region.key));
  CHECK(world.b->link->revoke(region.key));
  std::vector<std::byte> source(1U << 20U, std::byte{1});
  for (const std::uint32_t bytes : {8U, 1U << 20U}) {
    CHECK(world.run(Verb::write, region, {source.data(), 0, bytes}).code == ErrorCode::stale);
    CHECK(world.run(Verb::read, region, {source.data(), 0, bytes}).code == ErrorCode::stale);
  }
  CHECK(all_equal(memory.span(), std::byte{0}));
  CHECK(all_equal(source, std::byte{1}));
  CHECK(world.a->link->traffic().bytes_out == 0);
}

TEST_CASE("pcie: revoked while the engine copies: nothing changes afterwards") {
  World world;
  const Plain memory(k_large);
  const auto region = world.shared(memory);
  std::vector<std::byte> source(k_large, std::byte{1});
  const Segment segment{source.data(), 0, k_large};
  REQUIRE(world.a->link->post(post_of(Verb::write, 5, region, segment)) == Answer::posted);
  wait_for_first_byte(memory);
  REQUIRE(*world.b->regions->close(region.key));
  REQUIRE(world.until([&] { return world.b->link->revoke(region.key); }));
  std::fill_n(memory.data(), k_large, std::byte{7});
  REQUIRE(world.until([&] { return world.a->record.completion(5) != nullptr; }));
  const ErrorCode code = world.a->record.completion(5)->error.code;
  CHECK((code == ErrorCode::stale || code == ErrorCode::ok));
  CHECK(all_equal(memory.span(), std::byte{7}));
}

TEST_CASE("pcie: closed by the target: the initiator's copies end, and nothing changes any more") {
  World world;
  const Plain memory(k_large);
  const auto region = world.shared(memory);
  std::vector<std::byte> source(k_large, std::byte{1});
  const Segment segment{source.data(), 0, k_large};
  REQUIRE(world.a->link->post(post_of(Verb::write, 5, region, segment)) == Answer::posted);
  wait_for_first_byte(memory);
  world.b->link->close();
  REQUIRE(world.until([&] { return world.b->link->drained(); }));
  std::fill_n(memory.data(), k_large, std::byte{7});
  REQUIRE(world.until([&] { return world.a->record.completion(5) != nullptr; }));
  CHECK(all_equal(memory.span(), std::byte{7}));
  REQUIRE(world.until([&] { return world.a->record.down == 1; }));
  CHECK(world.a->link->post(post_of(Verb::write, 6, region, segment)) == Answer::busy);
}

TEST_CASE("pcie: destroyed without waiting: the engine has let go") {
  World world;
  const Plain memory(k_large);
  const auto region = world.shared(memory);
  std::vector<std::byte> source(k_large, std::byte{1});
  const Segment segment{source.data(), 0, k_large};
  REQUIRE(world.a->link->post(post_of(Verb::write, 5, region, segment)) == Answer::posted);
  world.a->link.reset();
  const std::vector<std::byte> seen(memory.data(), memory.data() + k_large);
  std::vector<std::byte>().swap(source);
  CHECK(world.until([&] { return world.b->record.down == 1; }));
  CHECK(std::equal(seen.begin(), seen.end(), memory.data()));
}

TEST_CASE("pcie: what the kind says of itself, and that it takes no signals") {
  World world;
  CHECK(world.a->factory->available());
  const links::LinkCaps& caps = world.a->factory->caps();
  CHECK(caps.kind == LinkKind::pcie);
  CHECK(!caps.needs_window);
  CHECK(caps.target_passive);
  CHECK(caps.same_host_only);
  CHECK(caps.executed_by_initiator);
  CHECK(!caps.words);
  CHECK(world.a->link->lane() == nullptr);
  CHECK(world.a->link->bell() == nullptr);
  const Plain memory(k_page);
  const auto region = world.shared(memory);
  CHECK(world.run(Verb::signal_set, region, {nullptr, 0, 8}).code == ErrorCode::unsupported);
  CHECK(all_equal(memory.span(), std::byte{0}));
}
