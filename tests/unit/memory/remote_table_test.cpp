// SPDX-License-Identifier: Apache-2.0
//
// RemoteTable: which error for which wrong address, replacement, and readers beside the loop.
#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "base/random.hpp"
#include "memory/remote_table.hpp"

using namespace hixl;
using namespace hixl::memory;

namespace {

constexpr std::uint64_t k_max = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t k_life = 77;

RemoteRegion region(RegionKey key, std::uint64_t base, std::uint64_t length, Rights rights = Rights::all) {
  return {.rank = 3, .incarnation = k_life, .key = key, .token = {key.generation, key.id}, .base = base,
          .length = length, .rights = rights};
}

RemoteAddress by_address(std::uint64_t address) { return {.rank = 3, .address = address}; }

void check_refused(const RemoteTable& table, const RemoteAddress& address, std::uint64_t length, Rights need,
                   ErrorCode code, std::uint64_t base, std::uint64_t bytes, std::uint64_t limit) {
  INFO("address " << address.address << " length " << length);
  const auto view = table.resolve(address, length, need);
  REQUIRE_FALSE(view.has_value());
  CHECK(view.error().code == code);
  CHECK(view.error().detail.rank == 3);
  CHECK(view.error().detail.stage == Stage::local_check);
  CHECK(view.error().detail.address == address.address);
  CHECK(view.error().detail.length == length);
  CHECK(view.error().detail.nearest_base == base);
  CHECK(view.error().detail.nearest_length == bytes);
  CHECK(view.error().detail.limit == limit);
}

}  // namespace

TEST_CASE("remote table: each wrong address has its error, with the numbers") {
  RemoteTable table(8);
  check_refused(table, by_address(1000), 8, Rights::read, ErrorCode::not_exchanged, 0, 0, 0);
  check_refused(table, {3, 1000, {0, 1}, 0}, 8, Rights::read, ErrorCode::not_exchanged, 0, 0, 0);

  REQUIRE(table.add(region({2, 5}, 1000, 100, Rights::read)).has_value());
  REQUIRE(table.add(region({4, 1}, 5000, 100)).has_value());
  CHECK(table.size() == 2);
  const RemoteAddress inside = region({2, 5}, 1000, 100).at(40);

  const auto view = table.resolve(inside, 60, Rights::read);
  REQUIRE(view.has_value());
  CHECK(view->key == RegionKey{2, 5});
  CHECK(view->token == Token{5, 2});
  CHECK(view->offset == 40);
  CHECK(view->mapped == nullptr);
  CHECK(table.resolve(by_address(1040), 60, Rights::read)->key == RegionKey{2, 5});
  CHECK(table.resolve(by_address(1100), 0, Rights::read)->offset == 100);
  CHECK(table.resolve({3, 1100, {2, 5}, 0}, 0, Rights::none)->offset == 100);

  check_refused(table, inside, 61, Rights::read, ErrorCode::out_of_range, 1000, 100, 60);
  check_refused(table, by_address(1040), 61, Rights::read, ErrorCode::out_of_range, 1000, 100, 60);
  check_refused(table, inside, k_max, Rights::read, ErrorCode::out_of_range, 1000, 100, 60);
  check_refused(table, by_address(1040), k_max - 1039, Rights::read, ErrorCode::out_of_range, 1000, 100, 60);
  check_refused(table, {3, 999, {2, 5}, 0}, 8, Rights::read, ErrorCode::out_of_range, 1000, 100, 0);
  check_refused(table, {3, 5000, {2, 5}, 0}, 8, Rights::read, ErrorCode::out_of_range, 1000, 100, 0);
  check_refused(table, by_address(4000), 8, Rights::read, ErrorCode::not_registered, 5000, 100, 0);
  check_refused(table, {3, 1000, {3, 1}, 0}, 8, Rights::read, ErrorCode::not_registered, 1000, 100, 100);
  check_refused(table, {3, 1000, {4000000000U, 1}, 0}, 8, Rights::read, ErrorCode::not_registered, 1000, 100, 100);
  check_refused(table, inside, 8, Rights::write, ErrorCode::access_denied, 1000, 100, 60);
  check_refused(table, by_address(1040), 8, Rights::read | Rights::atomic, ErrorCode::access_denied, 1000, 100, 60);
  check_refused(table, {3, 1040, {2, 4}, k_life}, 8, Rights::read, ErrorCode::stale, 1000, 100, 60);
  check_refused(table, {3, 1040, {2, 6}, k_life}, 8, Rights::read, ErrorCode::stale, 1000, 100, 60);
  check_refused(table, {3, 1040, {2, 5}, k_life + 1}, 8, Rights::read, ErrorCode::stale, 1000, 100, 60);
  check_refused(table, {3, 1040, {}, k_life + 1}, 8, Rights::read, ErrorCode::stale, 1000, 100, 60);
  // Nothing is known of that region any more, but it is known that its rank has another life now.
  check_refused(table, {3, 1040, {7, 1}, k_life + 1}, 200, Rights::read, ErrorCode::stale, 1000, 100, 60);
}

TEST_CASE("remote table: what cannot be a region is not added") {
  RemoteTable table(4);
  CHECK(table.add(region({4, 1}, 0, 8)).error().code == ErrorCode::limit_reached);
  CHECK(table.add(region({4, 1}, 0, 8)).error().detail.limit == 4);
  CHECK(table.add(region({1, 0}, 0, 8)).error().code == ErrorCode::invalid_argument);
  CHECK(table.add(region({1, 1}, 0, 0)).error().code == ErrorCode::invalid_argument);
  CHECK(table.add(region({1, 1}, k_max, 1)).error().code == ErrorCode::out_of_range);
  CHECK(table.add(region({1, 1}, 2, k_max)).error().code == ErrorCode::out_of_range);
  CHECK(table.size() == 0);
  REQUIRE(table.add(region({1, 1}, k_max - 8, 8)).has_value());
  CHECK(table.resolve(by_address(k_max - 8), 8, Rights::read)->offset == 0);
  CHECK(table.resolve(by_address(k_max - 8), 9, Rights::read).error().code == ErrorCode::out_of_range);
  CHECK(table.resolve({3, k_max - 8, {1, 1}, 0}, 9, Rights::read).error().code == ErrorCode::out_of_range);
}

TEST_CASE("remote table: a new generation takes the place of the old one") {
  RemoteTable table(4);
  std::byte there[64];
  REQUIRE(table.add(region({1, 1}, 1000, 64)).has_value());
  table.set_mapping({1, 1}, there);
  CHECK(table.mapping({1, 1}) == there);
  CHECK(table.mapping({1, 2}) == nullptr);
  CHECK(table.resolve(by_address(1008), 8, Rights::read)->mapped == there + 8);

  REQUIRE(table.add(region({1, 1}, 1000, 64)).has_value());  // told twice: nothing changes
  CHECK(table.mapping({1, 1}) == there);

  REQUIRE(table.add(region({1, 2}, 2000, 64)).has_value());
  CHECK(table.size() == 1);
  CHECK(table.mapping({1, 2}) == nullptr);
  table.set_mapping({1, 1}, there);  // too late
  CHECK(table.mapping({1, 1}) == nullptr);
  CHECK(table.mapping({1, 2}) == nullptr);
  CHECK(table.resolve(by_address(1000), 8, Rights::read).error().code == ErrorCode::not_registered);
  CHECK(table.resolve({3, 1000, {1, 1}, 0}, 8, Rights::read).error().code == ErrorCode::stale);
  CHECK(table.resolve(by_address(2000), 8, Rights::read)->key == RegionKey{1, 2});

  CHECK(table.add(region({1, 1}, 1000, 64)).error().code == ErrorCode::stale);  // an old message, late
  CHECK(table.resolve(by_address(2000), 8, Rights::read)->key == RegionKey{1, 2});
  RemoteRegion reborn = region({1, 1}, 3000, 64);
  reborn.incarnation = k_life + 1;  // generations of another life are another count
  REQUIRE(table.add(reborn).has_value());
  CHECK(table.resolve(by_address(3000), 8, Rights::read)->key == RegionKey{1, 1});

  table.set_mapping({1, 1}, there);
  table.set_mapping({1, 1}, nullptr);
  CHECK(table.resolve(by_address(3000), 8, Rights::read)->mapped == nullptr);
  table.clear();
  CHECK(table.size() == 0);
  CHECK(table.resolve(by_address(3000), 8, Rights::read).error().code == ErrorCode::not_exchanged);
  CHECK(table.mapping({1, 1}) == nullptr);
  REQUIRE(table.add(region({2, 1}, 9000, 64)).has_value());
  CHECK(table.resolve(by_address(3000), 8, Rights::read).error().code == ErrorCode::not_registered);
  CHECK(table.resolve({3, 3000, {1, 1}, 0}, 8, Rights::read).error().code == ErrorCode::not_registered);
}

TEST_CASE("remote table: by address and by key against a plain list") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    const std::uint64_t origin = seed % 2 == 0 ? 0 : k_max - 64;
    RemoteTable table(12);
    std::vector<std::optional<RemoteRegion>> known(12);
    std::vector<std::uint64_t> ages(12);
    for (std::uint64_t step = 1; step <= 300; ++step) {
      const auto id = static_cast<std::uint32_t>(random.below(12));
      const std::uint64_t base = origin + random.below(64);
      const std::uint64_t length = random.between(1, origin + 64 - base);
      const auto generation = static_cast<std::uint32_t>(step);
      known[id] = region({id, generation}, base, length, random.chance(500) ? Rights::all : Rights::read);
      ages[id] = step;
      REQUIRE(table.add(*known[id]).has_value());
      for (int look = 0; look < 10; ++look) {
        const std::uint64_t address = origin + random.below(68) - 2;
        const std::uint64_t bytes = random.below(68);
        const auto holds = [&](const RemoteRegion& one) {
          return address >= one.base && address - one.base <= one.length &&
                 bytes <= one.length - (address - one.base);
        };
        const RemoteRegion* newest = nullptr;
        for (std::size_t i = 0; i < known.size(); ++i) {
          if (!known[i] || !holds(*known[i])) continue;
          if (newest == nullptr || ages[i] > ages[newest->key.id]) newest = &*known[i];
        }
        const auto view = table.resolve(by_address(address), bytes, Rights::write);
        const bool granted = newest != nullptr && newest->rights == Rights::all;
        REQUIRE(view.has_value() == granted);
        if (granted) REQUIRE(view->key == newest->key);
        if (granted) REQUIRE(view->offset == address - newest->base);
        if (!granted && newest != nullptr) REQUIRE(view.error().code == ErrorCode::access_denied);

        const auto picked = static_cast<std::uint32_t>(random.below(12));
        if (!known[picked]) continue;
        const auto keyed = table.resolve({3, address, known[picked]->key, k_life}, bytes, Rights::read);
        REQUIRE(keyed.has_value() == holds(*known[picked]));
      }
    }
  }
}

TEST_CASE("remote table: readers beside the loop see whole regions only") {
  // Generation g of region 0 lies at one of two places in turn; its token and its mapping say g as well: no
  // mixture may ever be seen.
  constexpr std::uint32_t k_generations = 100000;
  constexpr std::uint64_t k_step = 4096;
  RemoteTable table(64);
  std::vector<std::byte> memory(k_generations + k_step);
  REQUIRE(table.add(region({1, 1}, 4 * k_step, 64)).has_value());  // stands all the time
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> seen{0};
  const auto reader = [&] {
    for (std::uint64_t turn = 0; !done.load(); ++turn) {
      if (!table.resolve(by_address(4 * k_step), 64, Rights::read).has_value()) ++wrong;
      const auto view = table.resolve(by_address(turn % 2 * k_step + 8), 8, Rights::read);
      if (!view.has_value()) {
        if (view.error().code != ErrorCode::not_registered) ++wrong;
        continue;
      }
      ++seen;
      const std::uint32_t g = view->key.generation;
      if (g % 2 != turn % 2 || view->key.id != 0 || view->token != Token{g, 0} || view->offset != 8) ++wrong;
      if (view->mapped != nullptr && view->mapped != memory.data() + g + 8) ++wrong;
      const std::byte* mapping = table.mapping(view->key);
      if (mapping != nullptr && mapping != memory.data() + g) ++wrong;
    }
  };
  std::thread first(reader);
  std::thread second(reader);
  for (std::uint32_t g = 1; g < k_generations || seen.load() < 1000; ++g) {
    CHECK(table.add(region({0, g}, g % 2 * k_step, k_step)).has_value());
    if (g < k_generations) table.set_mapping({0, g}, memory.data() + g);
  }
  done = true;
  first.join();
  second.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE("remote table: what a region grants, for the generation that stands and no other") {
  RemoteTable table(8);
  CHECK(!table.grant({2, 5}));
  REQUIRE(table.add(region({2, 5}, 1000, 100, Rights::read)).has_value());
  const auto grant = table.grant({2, 5});
  REQUIRE(grant);
  CHECK(grant->base == 1000);
  CHECK(grant->length == 100);
  CHECK(grant->rights == Rights::read);
  CHECK(grant->token == Token{5, 2});
  CHECK(!table.grant({2, 4}));
  CHECK(!table.grant({3, 5}));
  CHECK(!table.grant({2, 0}));
  CHECK(!table.grant({99, 5}));
  REQUIRE(table.add(region({2, 6}, 2000, 50)).has_value());
  CHECK(!table.grant({2, 5}));
  CHECK(table.grant({2, 6})->base == 2000);
  table.clear();
  CHECK(!table.grant({2, 6}));
}
