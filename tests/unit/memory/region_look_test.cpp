// SPDX-License-Identifier: Apache-2.0
//
// What is to be seen of regions from inside: ours in pieces, those of a peer one by one.
#include <vector>

#include <doctest/doctest.h>

#include "memory/region_table.hpp"
#include "memory/remote_table.hpp"

using namespace hixl;
using namespace hixl::memory;
using namespace std::chrono_literals;

namespace {

std::vector<RegionLook> all_of(const RegionTable& table, std::uint32_t piece_ids) {
  std::vector<RegionLook> all;
  bool more = true;
  for (std::uint32_t next = 0; more;) {
    auto piece = table.look(next, piece_ids);
    CHECK(piece.regions.size() <= piece_ids);
    all.insert(all.end(), piece.regions.begin(), piece.regions.end());
    next = piece.next;
    more = piece.more;
  }
  return all;
}

}  // namespace

TEST_CASE("a region is seen with its references, pins, age and state, until it is retired") {
  auto table = *RegionTable::create(8, 1);
  const Instant born{5s};
  const auto window = table->allocate(64U << 10U, {.tag = 9}, born);
  REQUIRE(window.has_value());
  const auto part = table->add(window->data + 4096, 4096, {.rights = Rights::read}, host_device(), born + 1s);
  REQUIRE(part.has_value());
  REQUIRE(table->add(window->data + 4096, 4096, {.rights = Rights::read}, host_device(), born + 2s).has_value());

  auto seen = all_of(*table, 100);
  REQUIRE(seen.size() == 2);
  const RegionLook first = seen[0], second = seen[1];
  CHECK(first.info.key == window->key);
  CHECK(first.info.data == window->data);
  CHECK(first.info.size == window->size);
  CHECK(first.info.tag == 9);
  CHECK(first.info.page_bytes == window->page_bytes);
  CHECK(first.opened == born);
  CHECK(first.references == 1);
  CHECK(first.info.window_id != 0);
  CHECK(second.number > first.number);
  CHECK(second.opened == born + 1s);  // the same range again is the same region
  CHECK(second.references == 2);
  CHECK(second.info.rights == Rights::read);
  CHECK_FALSE((first.closed || first.held || second.closed || second.held));

  {
    const auto pin = table->pin(window->data, 8192);  // held by the window alone
    REQUIRE(pin.has_value());
    seen = all_of(*table, 100);
    CHECK(seen[0].pins == 1);
    CHECK(seen[1].pins == 0);
    REQUIRE(table->close(window->key).value());
    CHECK(all_of(*table, 100)[0].closed);
    table->hold(window->key);
    CHECK(all_of(*table, 100)[0].held);
  }
  REQUIRE(table->unpinned(window->key));
  static_cast<void>(table->retire(window->key, false));
  seen = all_of(*table, 100);
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].info.key == part->key);
}

TEST_CASE("pieces of any size show every region once") {
  auto table = *RegionTable::create(64, 1);
  const auto window = table->allocate(64U << 10U, {});
  REQUIRE(window.has_value());
  std::vector<RegionKey> keys{window->key};
  for (std::size_t i = 0; i < 40; ++i) keys.push_back(table->add(window->data + i * 64, 64, {})->key);
  for (std::size_t i = 1; i < keys.size(); i += 3) {  // holes
    REQUIRE(table->close(keys[i]).value());
    static_cast<void>(table->retire(keys[i], false));
  }
  const std::size_t left = all_of(*table, 1000).size();
  CHECK(left == keys.size() - 14);
  for (const std::uint32_t piece : {1U, 2U, 7U, 41U, 64U}) CHECK(all_of(*table, piece).size() == left);
  CHECK_FALSE(table->look(0xffffffffU, 10).more);
}

TEST_CASE("a peer's region is seen with what it grants, whether it is mapped, and that it is retired") {
  RemoteTable table(16);
  CHECK(table.ids_end() == 0);
  CHECK_FALSE(table.look(3).has_value());
  const RemoteRegion region{.rank = 1,
                            .incarnation = 77,
                            .key = {3, 5},
                            .token = {1, 2},
                            .base = 4096,
                            .length = 100,
                            .rights = Rights::read,
                            .tag = 8,
                            .kind = MemoryKind::hbm};
  REQUIRE(table.add(region).has_value());
  CHECK(table.ids_end() == 4);
  auto look = table.look(3);
  REQUIRE(look.has_value());
  CHECK(look->key == region.key);
  CHECK(look->incarnation == 77);
  CHECK(look->base == 4096);
  CHECK(look->length == 100);
  CHECK(look->rights == Rights::read);
  CHECK(look->tag == 8);
  CHECK(look->kind == MemoryKind::hbm);
  CHECK_FALSE((look->mapped || look->retired));
  std::byte there{};
  table.set_mapping(region.key, &there);
  table.set_retired({3, 4});  // another life
  look = table.look(3);
  CHECK((look->mapped && !look->retired));
  table.set_retired(region.key);
  CHECK(table.look(3)->retired);
  RemoteRegion next = region;
  next.key.generation = 6;
  REQUIRE(table.add(next).has_value());
  CHECK_FALSE(table.look(3)->retired);
  table.clear();
  CHECK(table.ids_end() == 0);
  CHECK_FALSE(table.look(3).has_value());
}
