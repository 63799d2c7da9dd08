// SPDX-License-Identifier: Apache-2.0
//
// RegionTable: registering, lives of slots, closing beside users, and what a peer may touch.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "base/random.hpp"
#include "memory/region_table.hpp"
#include "memory/remote_table.hpp"

// Allocations of this thread, for the promise that look-ups make none. Not inlined, or else g++ 12 sees malloc in one
// place and operator delete in another, and calls them mismatched.
static thread_local std::uint64_t allocations = 0;
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

using namespace hixl;
using namespace hixl::memory;

namespace {

constexpr std::uint64_t k_max = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t k_page_bytes = 4096;

std::unique_ptr<RegionTable> make_table(std::uint32_t regions_max = 64, std::uint32_t first_generation = 1) {
  auto table = RegionTable::create(regions_max, 1, first_generation);
  REQUIRE(table.has_value());
  return std::move(*table);
}

/// Both steps of deregistering.
std::uint32_t drop(RegionTable& table, RegionKey key) {
  REQUIRE(table.close(key).value());
  REQUIRE(table.unpinned(key));
  return table.retire(key, false).id();
}

/// Memory of another kind, at addresses that the CPU does not know.
class FarDevice final : public Device {
 public:
  [[nodiscard]] const DeviceCaps& caps() const noexcept override { return caps_; }
  void write(std::byte*, const std::byte*, std::size_t) noexcept override {}
  void read(std::byte*, const std::byte*, std::size_t) noexcept override {}

 private:
  DeviceCaps caps_{.name = "far"};
};

}  // namespace

TEST_CASE("region table: what cannot be registered") {
  auto table = make_table(4);
  std::byte memory[64];
  CHECK(table->add(memory, 0, {}).error().code == ErrorCode::invalid_argument);
  CHECK(table->add(memory, 64, {.rights = static_cast<Rights>(8)}).error().code == ErrorCode::invalid_argument);
  CHECK(table->add(memory, k_max, {}).error().code == ErrorCode::out_of_range);
  CHECK(table->add(nullptr, 64, {}).error().code == ErrorCode::memory_unmapped);
  CHECK(table->add(nullptr, k_max, {}).error().code == ErrorCode::memory_unmapped);
  CHECK(table->add(reinterpret_cast<void*>(1), k_max - 1, {}).error().code == ErrorCode::memory_unmapped);
  CHECK(table->add(reinterpret_cast<void*>(k_max - 8), 8, {}).error().code == ErrorCode::memory_unmapped);
  CHECK(table->allocate(0, {}).error().code == ErrorCode::invalid_argument);
  CHECK(table->list().empty());

  auto* pages = static_cast<std::byte*>(
      mmap(nullptr, 3 * k_page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(pages != MAP_FAILED);
  REQUIRE(munmap(pages + k_page_bytes, k_page_bytes) == 0);
  const auto hole = table->add(pages + k_page_bytes - 1, k_page_bytes + 2, {});
  REQUIRE_FALSE(hole.has_value());
  CHECK(hole.error().code == ErrorCode::memory_unmapped);
  CHECK(hole.error().detail.address == reinterpret_cast<std::uint64_t>(pages + k_page_bytes - 1));
  CHECK(hole.error().detail.length == k_page_bytes + 2);
  CHECK(table->add(pages, k_page_bytes + 1, {}).error().code == ErrorCode::memory_unmapped);
  CHECK(table->add(pages + 2 * k_page_bytes - 1, 2, {}).error().code == ErrorCode::memory_unmapped);
  CHECK(table->add(pages + k_page_bytes - 1, 1, {}).has_value());
  CHECK(table->add(pages + 2 * k_page_bytes, k_page_bytes, {}).has_value());
  munmap(pages, 3 * k_page_bytes);
}

TEST_CASE("region table: the same range again is the same region") {
  auto table = make_table();
  FarDevice far;
  std::byte memory[64];
  const auto first = table->add(memory, 64, {.rights = Rights::read, .tag = 5});
  REQUIRE(first.has_value());
  CHECK(first->key == RegionKey{0, 1});
  CHECK(first->window_id == 0);
  CHECK(table->add(memory, 64, {.rights = Rights::read, .tag = 5})->key == first->key);
  CHECK(table->add(memory, 63, {.rights = Rights::read, .tag = 5})->key.id == 1);
  CHECK(table->add(memory, 64, {.rights = Rights::all, .tag = 5})->key.id == 2);
  CHECK(table->add(memory, 64, {.rights = Rights::read, .tag = 6})->key.id == 3);
  CHECK(table->add(memory, 64, {.rights = Rights::read, .tag = 5}, far)->key.id == 4);
  CHECK(table->list().size() == 5);

  CHECK(table->close(first->key).value() == false);
  CHECK(table->info(first->key).has_value());
  CHECK(table->board().generation(0) == 1);
  CHECK(table->close(first->key).value() == true);
  CHECK(table->info(first->key).error().code == ErrorCode::stale);
  CHECK(table->board().generation(0) == 0);
  CHECK(table->close(first->key).error().code == ErrorCode::stale);
  // While the old life is on its way out, the range begins a new one elsewhere.
  const auto second = table->add(memory, 64, {.rights = Rights::read, .tag = 5});
  CHECK(second->key.id == 5);
  CHECK(second->token != first->token);
  CHECK(table->unpinned(first->key));
  CHECK(table->retire(first->key, false).id() == 0);
  CHECK(table->close(first->key).error().code == ErrorCode::stale);
  CHECK(table->add(memory, 10, {})->key == RegionKey{0, 2});
  CHECK(table->close({0, 1}).error().code == ErrorCode::stale);
  CHECK(table->close({63, 0}).error().code == ErrorCode::stale);
  CHECK(table->close({64, 1}).error().code == ErrorCode::stale);
}

TEST_CASE("region table: a life of a slot never comes back") {
  auto table = make_table(4);
  std::byte memory[64];
  std::set<std::pair<std::uint32_t, std::uint32_t>> lives;
  std::set<std::uint64_t> tokens;
  for (std::size_t round = 0; round < 50; ++round) {
    std::vector<RegionKey> keys;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto region = table->add(memory + i, 8, {});
      REQUIRE(region.has_value());
      REQUIRE(lives.emplace(region->key.id, region->key.generation).second);
      REQUIRE(tokens.insert(region->token.low).second);
      keys.push_back(region->key);
    }
    const auto fifth = table->add(memory + 4, 8, {});
    REQUIRE(fifth.error().code == ErrorCode::limit_reached);
    REQUIRE(fifth.error().detail.limit == 4);
    REQUIRE(table->allocate(8, {}).error().code == ErrorCode::limit_reached);
    REQUIRE(table->add(memory, 8, {})->key == keys[0]);  // one more reference needs no slot
    REQUIRE_FALSE(table->close(keys[0]).value());
    for (const RegionKey key : keys) drop(*table, key);
  }
}

TEST_CASE("region table: a slot whose generations are used up stays empty") {
  auto table = make_table(2, std::numeric_limits<std::uint32_t>::max() - 1);
  std::byte memory[8];
  std::vector<RegionKey> keys;
  for (int life = 0; life < 4; ++life) {
    const auto region = table->add(memory, 8, {});
    REQUIRE(region.has_value());
    keys.push_back(region->key);
    drop(*table, region->key);
  }
  CHECK(keys[0] == RegionKey{0, 0xfffffffe});
  CHECK(keys[1] == RegionKey{0, 0xffffffff});
  CHECK(keys[2] == RegionKey{1, 0xfffffffe});
  CHECK(keys[3] == RegionKey{1, 0xffffffff});
  CHECK(table->add(memory, 8, {}).error().code == ErrorCode::limit_reached);
}

TEST_CASE("region table: pins and what is told when there is none") {
  auto table = make_table();
  std::byte memory[256];
  const auto outer = table->add(memory, 200, {});
  const auto inner = table->add(memory + 50, 50, {});
  REQUIRE(outer.has_value());
  REQUIRE(inner.has_value());
  CHECK(table->pin(memory + 50, 50)->id() == inner->key.id);  // the newest that holds all of it
  CHECK(table->pin(memory + 50, 51)->id() == outer->key.id);
  CHECK(&table->pin(memory, 1)->device() == &host_device());
  CHECK(table->find(memory + 60, 40)->key == inner->key);
  CHECK(table->find(memory + 60, 41)->key == outer->key);

  const auto nothing = table->pin(nullptr, 0);
  REQUIRE(nothing.has_value());
  CHECK_FALSE(static_cast<bool>(*nothing));
  CHECK(&nothing->device() == &host_device());

  const auto over = table->pin(memory + 150, 51);
  REQUIRE_FALSE(over.has_value());
  CHECK(over.error().code == ErrorCode::out_of_range);
  CHECK(over.error().detail.nearest_base == reinterpret_cast<std::uint64_t>(memory));
  CHECK(over.error().detail.nearest_length == 200);
  CHECK(over.error().detail.limit == 50);
  CHECK(table->pin(memory + 150, k_max).error().code == ErrorCode::out_of_range);
  CHECK(table->pin(memory + 200, 1).error().code == ErrorCode::not_registered);
  CHECK(table->pin(memory + 200, 1).error().detail.nearest_length == 200);
  CHECK(table->find(memory + 200, 1).error().code == ErrorCode::not_registered);

  // A pin holds its region until it is let go, moved or not; the others are free.
  Pin pin = std::move(*table->pin(memory + 60, 10));
  REQUIRE(table->close(inner->key).value());
  CHECK_FALSE(table->unpinned(inner->key));
  CHECK(table->pin(memory + 60, 10)->id() == outer->key.id);
  Pin moved = std::move(pin);
  CHECK_FALSE(static_cast<bool>(pin));
  CHECK_FALSE(table->unpinned(inner->key));
  moved = Pin{};
  CHECK(table->unpinned(inner->key));

  REQUIRE(table->close(outer->key).value());
  CHECK(table->pin(memory + 60, 10).error().code == ErrorCode::stale);
  CHECK(table->find(memory + 10, 10).error().code == ErrorCode::stale);
  CHECK(table->find(memory + 10, 10).error().detail.nearest_length == 200);
  table->retire(outer->key, false);
  table->retire(inner->key, false);
  CHECK(table->pin(memory + 60, 10).error().code == ErrorCode::not_registered);
}

TEST_CASE("region table: what a peer may touch") {
  auto table = make_table();
  std::byte memory[100];
  const auto region = table->add(memory, 100, {.rights = Rights::read | Rights::atomic});
  REQUIRE(region.has_value());
  const RegionKey key = region->key;
  const Token token = region->token;
  CHECK(table->check(key, token, 0, 100, Rights::read)->data == memory);
  CHECK(table->check(key, token, 92, 8, Rights::atomic)->data == memory + 92);
  CHECK(table->check(key, token, 100, 0, Rights::read)->device == &host_device());
  const auto code = [&](RegionKey k, Token t, std::uint64_t offset, std::uint64_t length, Rights need) {
    return table->check(k, t, offset, length, need).error().code;
  };
  CHECK(code(key, token, 0, 101, Rights::read) == ErrorCode::out_of_range);
  CHECK(code(key, token, 101, 0, Rights::read) == ErrorCode::out_of_range);
  CHECK(code(key, token, 8, k_max, Rights::read) == ErrorCode::out_of_range);
  CHECK(code(key, token, k_max - 7, 8, Rights::read) == ErrorCode::out_of_range);
  CHECK(code(key, token, k_max, k_max, Rights::read) == ErrorCode::out_of_range);
  CHECK(table->check(key, token, 60, 41, Rights::read).error().detail.limit == 40);
  CHECK(code(key, token, 0, 8, Rights::write) == ErrorCode::access_denied);
  CHECK(code(key, token, 0, 8, Rights::all) == ErrorCode::access_denied);
  CHECK(code(key, {token.high, token.low + 1}, 0, 8, Rights::read) == ErrorCode::access_denied);
  CHECK(code(key, {token.high + 1, token.low}, 0, 8, Rights::read) == ErrorCode::access_denied);
  CHECK(table->check(key, {}, 0, 8, Rights::read).error().detail.nearest_base == 0);
  CHECK(code({key.id, key.generation + 1}, token, 0, 8, Rights::read) == ErrorCode::stale);
  CHECK(code({key.id, 0}, token, 0, 8, Rights::read) == ErrorCode::stale);
  CHECK(code({1, 0}, {}, 0, 0, Rights::none) == ErrorCode::stale);
  CHECK(code({0xffffffff, 1}, token, 0, 8, Rights::read) == ErrorCode::stale);
  REQUIRE(table->close(key).value());
  CHECK(code(key, token, 0, 8, Rights::read) == ErrorCode::stale);
}

TEST_CASE("region table: an access that was let in stands as long as its region is open, and never in a later life") {
  auto table = make_table();
  std::byte memory[100];
  const auto first = table->add(memory, 100, {});
  REQUIRE(first.has_value());
  CHECK(table->stands(first->key));
  CHECK_FALSE(table->stands({first->key.id, first->key.generation + 1}));
  CHECK_FALSE(table->stands({first->key.id, 0}));
  CHECK_FALSE(table->stands({first->key.id + 1, 0}));  // a slot that was never used
  CHECK_FALSE(table->stands({0xffffffff, 1}));
  REQUIRE(table->add(memory, 100, {})->key == first->key);  // the same region once more
  REQUIRE_FALSE(table->close(first->key).value());
  CHECK(table->stands(first->key));
  REQUIRE(table->close(first->key).value());
  CHECK_FALSE(table->stands(first->key));
  table->retire(first->key, false);
  CHECK_FALSE(table->stands(first->key));
  const auto second = table->add(memory, 100, {});
  REQUIRE(second->key.id == first->key.id);
  CHECK(table->stands(second->key));
  CHECK_FALSE(table->stands(first->key));
}

TEST_CASE("region table: look-ups allocate nothing") {
  auto table = make_table();
  std::byte memory[64];
  const auto region = table->add(memory, 64, {});
  RemoteTable remote(8);
  REQUIRE(remote.add({.rank = 1, .incarnation = 2, .key = {1, 1}, .base = 64, .length = 64}).has_value());
  const std::uint64_t before = allocations;
  bool fine = true;
  for (int i = 0; i < 100; ++i) {
    fine = fine && table->pin(memory, 64).has_value() && !table->pin(memory, 65).has_value();
    fine = fine && table->check(region->key, region->token, 0, 64, Rights::write).has_value();
    fine = fine && !table->check(region->key, region->token, 0, 65, Rights::write).has_value();
    fine = fine && table->stands(region->key);
    fine = fine && table->find(memory, 1).has_value() && table->info(region->key).has_value();
    fine = fine && remote.resolve({.rank = 1, .address = 64}, 64, Rights::none).has_value();
    fine = fine && !remote.resolve({.rank = 1, .address = 64, .region = {1, 1}}, 65, Rights::none).has_value();
  }
  CHECK(allocations == before);
  CHECK(fine);
}

TEST_CASE("region table: P52, threads that register and deregister beside threads that use") {
  // `alive` of a buffer is set from before its registration until its region is closed and unpinned. Whoever holds a
  // pin, or is let in by check(), must never see it clear (check: unless the region has turned stale by then).
  constexpr std::size_t k_buffers = 4;
  constexpr std::size_t k_bytes = 64;
  constexpr int k_rounds = 4000;
  auto table = make_table(6);  // fewer slots than would keep ids apart: they are reused all the time
  std::vector<std::byte> memory(k_buffers * k_bytes);
  std::array<std::atomic<bool>, k_buffers> alive{};
  std::array<std::atomic<std::uint64_t>, k_buffers> keys{};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> pinned{0};
  std::atomic<int> owners{2};

  const auto owner = [&](std::size_t first) {
    for (int round = 0; round < k_rounds; ++round) {
      const std::size_t b = first + static_cast<std::size_t>(round % 2);
      alive[b] = true;
      const auto region = table->add(memory.data() + b * k_bytes, k_bytes, {});
      if (!region.has_value()) {
        ++wrong;
        break;
      }
      keys[b] = std::uint64_t{region->key.generation} << 32U | region->key.id;
      if (round % 15 == 0) std::this_thread::yield();  // let others find it open; odd: either buffer
      if (!table->close(region->key).value_or(false)) ++wrong;
      while (!table->unpinned(region->key)) std::this_thread::yield();
      alive[b] = false;
      table->retire(region->key, false);
      if (round % 7 == 0) std::this_thread::yield();  // let others find the slot empty
    }
    --owners;
  };
  const auto user = [&](std::uint64_t seed) {
    Random random(seed);
    for (std::uint64_t turn = 1; owners.load() > 0; ++turn) {
      // Rather here than with a pin, which would hold an owner up for a time slice.
      if (turn % 4096 == 0) std::this_thread::yield();
      const std::size_t b = random.below(k_buffers);
      std::byte* data = memory.data() + b * k_bytes;
      if (auto pin = table->pin(data + 8, 16); pin.has_value()) {
        for (int look = 0; look < 4; ++look) {
          if (!alive[b].load()) ++wrong;
        }
        ++pinned;
      } else if (pin.error().code != ErrorCode::not_registered && pin.error().code != ErrorCode::stale) {
        ++wrong;
      }
      const std::uint64_t word = keys[b].load();
      const RegionKey key{static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32U)};
      const auto info = table->info(key);
      if (!info.has_value()) continue;
      if (info->data != data || info->size != k_bytes || info->key != key) ++wrong;
      const auto place = table->check(key, info->token, 8, 8, Rights::write);
      if (place.has_value() && place->data != data + 8) ++wrong;
      if (!place.has_value() && place.error().code != ErrorCode::stale) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back(owner, 0);
  threads.emplace_back(owner, 2);
  threads.emplace_back(user, 21);
  threads.emplace_back(user, 22);
  for (std::thread& thread : threads) thread.join();
  MESSAGE("pins that succeeded: " << pinned.load());
  CHECK(wrong.load() == 0);
  CHECK(table->list().empty());
}
