// SPDX-License-Identifier: Apache-2.0
//
// Order, cancel and atomics where bytes go by cross-memory attach and words by tcp: kinds of link that know nothing of
// each other.
#include <thread>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_size = 4U << 20U;

/// Memory of the program's own on both sides, which no window reaches.
struct Attached {
  Attached() : world(2, {LinkKind::pcie, LinkKind::tcp}) {
    std::vector<Region> regions;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      auto region = world[rank].register_memory(bytes[rank].data(), k_size);
      require_ok(region);
      regions.push_back(*region);
    }
    remote = world.exchange_all(regions)[0][1];
  }
  /// Puts only by attach, from here on; the first tells whether this system allows it.
  [[nodiscard]] bool works() {
    const auto done = put(0, 0, 4096)->wait(k_patience);
    if (!done) {
      CHECK(done.error().code == ErrorCode::transport_unavailable);
      MESSAGE("skipped: this system lets no process attach to another: " << done.error().message());
    }
    return done.has_value();
  }
  [[nodiscard]] Result<Request> put(std::size_t from, std::size_t to, std::size_t size) {
    auto posted = world[0].put(bytes[0].data() + from, remote.at(to), size, {.links = {LinkKind::pcie}});
    require_ok(posted);
    return posted;
  }
  std::vector<std::byte> bytes[2] = {std::vector<std::byte>(k_size), std::vector<std::byte>(k_size)};
  World world;
  RemoteRegion remote;
};

}  // namespace

TEST_CASE("F110: puts by attach to one place, a fence between each two, end as the last one; a flush waits for all") {
  Attached pair;
  if (!pair.works()) return;
  constexpr std::size_t k_puts = 30;
  for (std::size_t i = 0; i < k_puts; ++i) fill_pattern(pair.bytes[0].data() + i * 65536, 64, i + 1);
  for (int round = 0; round < rounds(20); ++round) {
    std::vector<Request> requests;
    for (std::size_t i = 0; i < k_puts; ++i) {
      // Long and short in turn, so that without order the short ones would be done first.
      requests.push_back(*pair.put(i * 65536, 0, i % 2 == 0 ? 1'500'000 : 64));
      require_ok(pair.world[0].fence(1));
    }
    require_ok(pair.world[0].flush(1, k_patience));
    for (Request& request : requests) CHECK(request.done());
    require_ok(wait_all(requests));
    static_cast<void>(pair.world[1].counters());
    CHECK(holds_pattern(pair.bytes[1].data(), 64, k_puts));
  }
}

TEST_CASE("F94: cancel of puts by attach: after their ends no byte moves") {
  Attached pair;
  if (!pair.works()) return;
  int cancelled = 0;
  for (int round = 0; round < rounds(40); ++round) {
    constexpr std::size_t k_part = k_size / 4;
    std::vector<Request> requests;
    for (std::size_t i = 0; i < 4; ++i) requests.push_back(*pair.put(i * k_part, i * k_part, k_part));
    for (Request& request : requests) require_ok(request.cancel());
    for (Request& request : requests) {
      const auto result = request.wait(k_patience);
      CHECK((result || code_of(result) == ErrorCode::cancelled));
      cancelled += result ? 0 : 1;
    }
    std::memset(pair.bytes[1].data(), 0x33, k_size);
    std::memset(pair.bytes[0].data(), 0x44, k_size);
    require_ok(pair.put(0, 0, 1)->wait(k_patience));
    CHECK(all_bytes(pair.bytes[1].data() + 1, k_size - 1, std::byte{0x33}));
  }
  CHECK(cancelled > 0);
}

TEST_CASE("F20: atomics on memory that bytes reach by attach go by tcp, once each, and are ordered by fences") {
  Attached pair;
  if (!pair.works()) return;
  const int each = rounds(300);
  std::vector<std::uint64_t> seen[2];
  std::vector<std::thread> threads;
  for (auto& values : seen) {
    threads.emplace_back([&pair, &values, each] {
      for (int i = 0; i < each; ++i) {
        const auto before = pair.world[0].fetch_add_sync(pair.remote.at(64), 1, k_patience);
        if (before) values.push_back(*before);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::uint64_t> all(seen[0]);
  all.insert(all.end(), seen[1].begin(), seen[1].end());
  std::sort(all.begin(), all.end());
  REQUIRE(all.size() == 2 * static_cast<std::size_t>(each));
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == i);
  // A put by one kind of link, a fence, and a swap by another over one of its words.
  for (int round = 0; round < rounds(100); ++round) {
    std::memset(pair.bytes[0].data(), round & 0x7f, 1U << 20U);
    auto request = pair.put(0, 0, 1U << 20U);
    require_ok(pair.world[0].fence(1));
    const auto before = pair.world[0].swap_sync(pair.remote.at(1U << 19U), ~std::uint64_t{0}, k_patience);
    require_ok(before);
    CHECK(*before == 0x0101010101010101U * static_cast<std::uint64_t>(round & 0x7f));
    require_ok(request->wait(k_patience));
  }
  auto refused = pair.world[0].atomic_add(pair.remote.at(64), 1, {.links = {LinkKind::pcie}});
  require_ok(refused);
  CHECK(code_of(refused->wait(k_patience)) == ErrorCode::transport_unavailable);
}
