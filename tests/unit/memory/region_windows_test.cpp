// SPDX-License-Identifier: Apache-2.0
//
// RegionTable: the memory behind the regions. Windows and their end, held pages, ranges beyond 4 GiB.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include <doctest/doctest.h>

#include "memory/region_table.hpp"

using namespace hixl;
using namespace hixl::memory;

namespace {

constexpr std::size_t k_page_bytes = 4096;
constexpr std::uint64_t k_gib = std::uint64_t{1} << 30U;

std::unique_ptr<RegionTable> make_table(std::uint32_t regions_max = 64) {
  auto table = RegionTable::create(regions_max, 1);
  REQUIRE(table.has_value());
  return std::move(*table);
}

/// Both steps of deregistering.
std::uint32_t drop(RegionTable& table, RegionKey key) {
  REQUIRE(table.close(key).value());
  REQUIRE(table.unpinned(key));
  return table.retire(key, false).id();
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
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

TEST_CASE("region table: a window lives as long as its last region") {
  const std::size_t descriptors = open_descriptors();
  {
    auto table = make_table();
    const auto whole = table->allocate(2 * k_page_bytes - 100, {.tag = 9});
    REQUIRE(whole.has_value());
    CHECK(whole->size == 2 * k_page_bytes - 100);
    CHECK(whole->window_id == 1);
    CHECK(whole->tag == 9);
    CHECK(table->window_fd(1).fd >= 0);
    CHECK(table->window_fd(1).size == 2 * k_page_bytes);
    const auto part = table->add(whole->data + k_page_bytes, 100, {});
    REQUIRE(part.has_value());
    CHECK(part->window_id == 1);
    CHECK(part->window_offset == k_page_bytes);
    FarDevice far;
    CHECK(table->add(whole->data + k_page_bytes, 100, {}, far)->window_id == 0);

    CHECK(drop(*table, whole->key) == 0);
    CHECK(table->window_fd(1).fd >= 0);
    whole->data[0] = std::byte{1};
    CHECK(table->add(whole->data, 8, {})->window_id == 1);
    CHECK(drop(*table, table->find(whole->data, 8)->key) == 0);
    CHECK(drop(*table, part->key) == 1);
    CHECK(table->window_fd(1).fd == -1);
    CHECK(table->window_fd(0).fd == -1);

    const auto next = table->allocate(k_page_bytes, {});
    CHECK(next->window_id == 2);
    CHECK(drop(*table, next->key) == 2);
    REQUIRE(table->allocate(k_page_bytes, {}).has_value());  // left to the table's end
  }
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("region table: memory is zeroed on release, and goes back piece by piece") {
  constexpr std::size_t k_size = 64 * k_page_bytes;
  auto table = make_table();
  const auto region = table->allocate(k_size, {.zero_on_release = true});
  REQUIRE(region.has_value());
  std::fill_n(region->data, k_size, std::byte{0x5a});
  const int fd = table->window_fd(region->window_id).fd;
  // Another process' mapping, as far as the kernel is concerned: it outlives the window.
  auto* other = static_cast<std::byte*>(mmap(nullptr, k_size, PROT_READ, MAP_SHARED, fd, 0));
  REQUIRE(other != MAP_FAILED);
  REQUIRE(table->close(region->key).value());
  {
    LeavingWindow leaving = table->retire(region->key, false);
    CHECK(leaving.id() == region->window_id);
    CHECK(leaving.give_back(k_page_bytes - 1) == 0);
    CHECK(leaving.give_back(16 * k_page_bytes + 1) == 16 * k_page_bytes);
    CHECK(!leaving.empty());
    CHECK(other[16 * k_page_bytes - 1] == std::byte{0});
    CHECK(other[16 * k_page_bytes] == std::byte{0x5a});
    CHECK(leaving.give_back(1U << 30U) == 48 * k_page_bytes);
    CHECK(leaving.empty());
    CHECK(leaving.give_back(k_page_bytes) == 0);
  }
  CHECK(std::all_of(other, other + k_size, [](std::byte byte) { return byte == std::byte{0}; }));
  munmap(other, k_size);

  const auto dropped = table->allocate(k_size, {.zero_on_release = true});
  std::fill_n(dropped->data, k_size, std::byte{0x5a});
  other =
      static_cast<std::byte*>(mmap(nullptr, k_size, PROT_READ, MAP_SHARED, table->window_fd(dropped->window_id).fd, 0));
  REQUIRE(other != MAP_FAILED);
  SUBCASE("in one go, when nobody takes steps") { drop(*table, dropped->key); }
  SUBCASE("with the table, too") { table.reset(); }
  CHECK(std::all_of(other, other + k_size, [](std::byte byte) { return byte == std::byte{0}; }));
  munmap(other, k_size);
}

TEST_CASE("region table: held bytes are counted until they go back, and stop allocations beyond their limit") {
  auto table = make_table(8);
  table->limit({.hbm_bytes = 0, .held_bytes_max = 3 * k_page_bytes});
  const auto first = table->allocate(3 * k_page_bytes, {});
  const auto second = table->allocate(k_page_bytes, {});
  REQUIRE(table->close(first->key).value());
  table->hold(first->key);
  table->hold(first->key);  // once is enough
  CHECK(table->held_bytes() == 3 * k_page_bytes);
  const auto third = table->allocate(k_page_bytes, {});
  REQUIRE(third.has_value());  // at the limit, not beyond
  REQUIRE(table->close(second->key).value());
  table->hold(second->key);
  const auto refused = table->allocate(k_page_bytes, {});
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code == ErrorCode::limit_reached);
  CHECK(refused.error().detail.limit == 3 * k_page_bytes);
  CHECK(refused.error().detail.nearest_length == 4 * k_page_bytes);
  table->retire(first->key, false);
  CHECK(table->held_bytes() == k_page_bytes);
  CHECK(table->allocate(k_page_bytes, {}).has_value());
  table->retire(second->key, true);
  CHECK(table->held_bytes() == k_page_bytes);
}

TEST_CASE("region table: held memory stays where it is and is given to nobody") {
  const std::size_t descriptors = open_descriptors();
  {
    auto table = make_table(8);
    const auto region = table->allocate(3 * k_page_bytes, {});
    REQUIRE(table->close(region->key).value());
    CHECK(table->retire(region->key, true).id() == 0);
    CHECK(table->held_bytes() == 3 * k_page_bytes);
    region->data[5] = std::byte{1};  // the peer that wakes up
    CHECK(region->data[5] == std::byte{1});
    CHECK(table->window_fd(region->window_id).fd == -1);
    CHECK(table->add(region->data, 8, {}).error().code == ErrorCode::held);
    std::byte memory[8];
    for (std::uint32_t id = 1; id < 8; ++id) CHECK(table->add(memory, id, {})->key.id == id);
    CHECK(table->add(memory, 8, {}).error().code == ErrorCode::limit_reached);
  }
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("region table: more than 4 GiB in one region") {
  constexpr std::size_t k_step = 64U << 20U;
  constexpr std::size_t k_size = 4 * k_gib + k_step;
  auto* base =
      static_cast<std::byte*>(mmap(nullptr, k_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  REQUIRE(base != MAP_FAILED);
  const int fd = memfd_create("hixl-test", MFD_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(ftruncate(fd, k_step) == 0);  // no page of it exists before it is touched
  for (std::size_t at = 0; at < k_size; at += k_step) {
    REQUIRE(mmap(base + at, k_step, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == base + at);
  }
  auto table = make_table();
  const auto region = table->add(base, k_size, {});
  REQUIRE(region.has_value());
  CHECK(region->size == k_size);
  const std::uint64_t offset = 4 * k_gib + 8;
  const auto place = table->check(region->key, region->token, offset, 8, Rights::write);
  REQUIRE(place.has_value());
  CHECK(place->data == base + offset);
  const std::uint64_t value = 0x1122334455667788;
  std::uint64_t back = 0;
  place->device->write(place->data, reinterpret_cast<const std::byte*>(&value), 8);
  place->device->read(reinterpret_cast<std::byte*>(&back), base + 8, 8);  // the same page, mapped at the start as well
  CHECK(back == value);
  CHECK(table->check(region->key, region->token, 16, k_size - 16, Rights::read).has_value());
  CHECK(table->check(region->key, region->token, 16, k_size - 15, Rights::read).error().detail.limit == k_size - 16);
  CHECK(table->pin(base + offset, k_size - offset).has_value());
  CHECK(table->pin(base + 1, k_size).error().detail.limit == k_size - 1);

  REQUIRE(munmap(base + 4 * k_gib, k_page_bytes) == 0);  // one page far behind the first 4 GiB
  CHECK(table->add(base, k_size - 1, {}).error().code == ErrorCode::memory_unmapped);
  CHECK(table->add(base, 4 * k_gib, {}).has_value());
  munmap(base, k_size);
  close(fd);
}
