// SPDX-License-Identifier: Apache-2.0
//
// Memory of a device, which no CPU may touch: as the local side on every link, as the remote side on those that reach
// it. Whoever dereferenced it anywhere would end this test by a signal.
#include <doctest/doctest.h>

#include "bytes.hpp"
#include "world.hpp"

using namespace conformance;

namespace {

/// Device memory of an end, filled and looked at through the device.
struct DeviceRegion {
  DeviceRegion(End& owner, std::size_t size)
      : remote(owner.allocate(size, Rights::all, MemoryKind::hbm)), device(*owner.regions->info(remote.key)->device) {}
  void set(std::span<const std::byte> bytes, std::size_t offset = 0) const {
    device.write(remote.memory + offset, bytes.data(), bytes.size());
  }
  [[nodiscard]] std::vector<std::byte> get(std::size_t offset, std::size_t size) const {
    std::vector<std::byte> bytes(size);
    device.read(bytes.data(), remote.memory + offset, size);
    return bytes;
  }
  Remote remote;
  memory::Device& device;
};

constexpr std::size_t k_bytes = 3U << 20U;

/// 32 pieces of one post, apart on both sides, from a few bytes to a good part of a chunk.
std::vector<Segment> pieces(std::byte* local, Random& random) {
  std::vector<Segment> segments;
  std::uint64_t at = 3;
  for (std::size_t i = 0; i < wire::k_segments_max; ++i) {
    const auto bytes = static_cast<std::uint32_t>(random.between(1, i % 8 == 0 ? 60'000 : 500));
    segments.push_back({local + at, at + 17, bytes});
    at += bytes + random.below(100);
  }
  return segments;
}

}  // namespace

TEST_CASE_TEMPLATE("F146 puts from and gets into local device memory", Kind, Hccs, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed() + 900;
  CAPTURE(seed);
  auto world = World::make(Kind::kind, seed);
  const Remote remote = world->share(k_bytes);
  const DeviceRegion local(world->a(), k_bytes);
  world->a().local_device = &local.device;
  Random random(seed);
  for (int round = 0; round < rounds(6); ++round) {
    CAPTURE(round);
    const auto bytes = noise(k_bytes, seed + static_cast<std::uint64_t>(round));
    local.set(bytes);
    std::fill_n(remote.memory, k_bytes, k_canary);
    std::vector<std::byte> expected(k_bytes, k_canary);
    std::vector<Segment> segments = pieces(local.remote.memory, random);
    for (const Segment& segment : segments) {
      const auto from = bytes.begin() + (segment.local - local.remote.memory);
      std::copy_n(from, segment.bytes, expected.begin() + static_cast<std::ptrdiff_t>(segment.offset));
    }
    REQUIRE(world->run(world->a(), Verb::write, remote, segments) == ErrorCode::ok);
    CHECK(same({remote.memory, k_bytes}, expected));

    std::vector<std::byte> wanted = bytes;  // what the get does not write stays
    fill({remote.memory, k_bytes}, seed + 77);
    for (const Segment& segment : segments) {
      std::copy_n(remote.memory + segment.offset, segment.bytes,
                  wanted.begin() + (segment.local - local.remote.memory));
    }
    REQUIRE(world->run(world->a(), Verb::read, remote, segments) == ErrorCode::ok);
    CHECK(same(local.get(0, k_bytes), wanted));
  }
  // Whole chunks, as many as there is credit for, at once.
  const auto bytes = noise(k_bytes, seed + 1000);
  local.set(bytes);
  constexpr std::uint32_t k_chunk = 1U << 20U;
  for (std::uint32_t at = 0; at < k_bytes; at += k_chunk) {
    world->post(world->a(), Verb::write, remote, {{local.remote.memory + at, at, k_chunk}});
  }
  world->wait_all(world->a());
  CHECK(same({remote.memory, k_bytes}, bytes));
  local.set(std::vector<std::byte>(k_bytes));
  for (std::uint32_t at = 0; at < k_bytes; at += k_chunk) {
    world->post(world->a(), Verb::read, remote, {{local.remote.memory + at, at, k_chunk}});
  }
  world->wait_all(world->a());
  CHECK(same(local.get(0, k_bytes), bytes));
  world->check_manners();
}

TEST_CASE_TEMPLATE("F146 puts into and gets from remote device memory", Kind, Tcp, Sim) {
  const std::uint64_t seed = base_seed() + 950;
  CAPTURE(seed);
  auto world = World::make(Kind::kind, seed);
  const DeviceRegion there(world->b(), k_bytes);
  if (!world->a().learn(there.remote, world->b())) world->until([&] { return world->a().attached(there.remote); });
  Random random(seed);
  std::vector<std::byte> local(k_bytes);
  for (int round = 0; round < rounds(6); ++round) {
    CAPTURE(round);
    fill(local, seed + static_cast<std::uint64_t>(round));
    std::vector<std::byte> expected = noise(k_bytes, seed + 5);
    there.set(expected);
    const std::vector<Segment> segments = pieces(local.data(), random);
    for (const Segment& segment : segments) {
      std::copy_n(segment.local, segment.bytes, expected.begin() + static_cast<std::ptrdiff_t>(segment.offset));
    }
    REQUIRE(world->run(world->a(), Verb::write, there.remote, segments) == ErrorCode::ok);
    CHECK(same(there.get(0, k_bytes), expected));

    std::vector<std::byte> back = noise(k_bytes, seed + 6);
    std::vector<std::byte> wanted = back;
    std::vector<Segment> reads = segments;
    for (Segment& segment : reads) {
      const auto offset = segment.local - local.data();
      segment.local = back.data() + offset;
      std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(segment.offset), segment.bytes,
                  wanted.begin() + offset);
    }
    REQUIRE(world->run(world->a(), Verb::read, there.remote, reads) == ErrorCode::ok);
    CHECK(same(back, wanted));
  }
  // More reads at once than there are buffers to stage them.
  const auto bytes = noise(k_bytes, seed + 2000);
  there.set(bytes);
  std::fill(local.begin(), local.end(), std::byte{0});
  constexpr std::uint32_t k_chunk = 192U << 10U;
  for (std::uint32_t at = 0; at < k_bytes; at += k_chunk) {
    world->post(world->a(), Verb::read, there.remote, {{local.data() + at, at, k_chunk}});
  }
  world->wait_all(world->a());
  CHECK(same(local, bytes));
  world->check_manners();
}

TEST_CASE_TEMPLATE("a signal or atomic to device memory is refused, and what is not mapped is not reached", Kind, Hccs,
                   Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed() + 980;
  CAPTURE(seed);
  auto world = World::make(Kind::kind, seed);
  const DeviceRegion there(world->b(), 4096);
  if (!world->a().learn(there.remote, world->b())) world->until([&] { return world->a().attached(there.remote); });
  const ErrorCode code = world->run(world->a(), Verb::signal_set, there.remote, {{nullptr, 8, 8}}, 5);
  const ErrorCode refusal = world->caps().needs_window ? ErrorCode::stale : ErrorCode::unsupported;
  CHECK(name(code) == name(refusal));
  const auto atomic = world->a().post_atomic(Verb::atomic_add, there.remote, 8, 5, {.number = 1});
  REQUIRE(atomic != 0);
  world->until([&] { return world->a().ended(atomic); });
  CHECK(name(world->a().code(atomic)) == name(refusal));
  CHECK(all(there.get(0, 4096), std::byte{0}));
  world->check_manners();
}

TEST_CASE_TEMPLATE("a region of device memory that is revoked while reads of it wait", Kind, Tcp) {
  const std::uint64_t seed = base_seed() + 990;
  CAPTURE(seed);
  auto world = World::make(Kind::kind, seed);
  const DeviceRegion there(world->b(), k_bytes);
  static_cast<void>(world->a().learn(there.remote, world->b()));
  Random random(seed);
  std::vector<std::byte> local(k_bytes);
  for (std::uint32_t at = 0; at < k_bytes; at += k_bytes / 8) {
    world->post(world->a(), Verb::read, there.remote, {{local.data() + at, at, k_bytes / 8}});
  }
  world->steps(random.below(4), [] {});
  REQUIRE(world->b().regions->close(there.remote.key).value());
  world->until([&] { return world->b().revoke(there.remote); });
  world->b().regions->retire(there.remote.key, false);
  // What was fetched before still comes, the rest is refused; nothing touches what is gone.
  world->wait_all(world->a());
  for (const auto& [number, attempt] : world->a().attempts) {
    CHECK((attempt.error.code == ErrorCode::ok || attempt.error.code == ErrorCode::stale));
  }
  world->check_manners();
}
