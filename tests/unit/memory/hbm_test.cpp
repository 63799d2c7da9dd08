// SPDX-License-Identifier: Apache-2.0
//
// Emulated device memory: its capacity, what the CPU may not do, and that its copies go through its engine.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "memory/hbm.hpp"
#include "memory/region_table.hpp"

using namespace hixl;
using namespace hixl::memory;

namespace {

constexpr std::size_t k_page_bytes = 4096;
constexpr std::size_t k_capacity = 16 * k_page_bytes;

std::vector<std::byte> noise(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(seed = seed * 1664525U + 1013904223U);
  return bytes;
}

std::unique_ptr<RegionTable> make_table() {
  auto table = RegionTable::create(64, 1);
  REQUIRE(table.has_value());
  (*table)->limit({.hbm_bytes = k_capacity, .held_bytes_max = k_capacity});
  return std::move(*table);
}

constexpr AllocateOptions k_hbm{.kind = MemoryKind::hbm};

/// The signal that ends a process which loads a byte from there; 0: none.
int signal_of_load(const std::byte* address) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would make an exit of it
    static_cast<void>(*reinterpret_cast<const volatile char*>(address));
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("F146 hbm: bytes go in and out by the engine, and only by it") {
  HbmHeap heap(k_capacity);
  auto block = heap.allocate(3 * k_page_bytes - 5, false);
  REQUIRE(block.has_value());
  Device& device = **block;
  CHECK((*block)->size() == 3 * k_page_bytes);
  CHECK(!device.caps().cpu_addressable);
  CHECK(!device.caps().atomic_capable);
  CHECK(!device.caps().mappable);
  CHECK(device.caps().kind == MemoryKind::hbm);
  CHECK(signal_of_load((*block)->data()) == SIGSEGV);

  const auto bytes = noise(5000, 7);
  std::vector<std::byte> back(bytes.size());
  device.read(back.data(), (*block)->data() + 77, back.size());
  CHECK(std::all_of(back.begin(), back.end(), [](std::byte byte) { return byte == std::byte{0}; }));
  device.write((*block)->data() + 77, bytes.data(), bytes.size());
  device.read(back.data(), (*block)->data() + 77, back.size());
  CHECK(back == bytes);
  CHECK(heap.copied_bytes() == 3 * bytes.size());

  auto second = heap.allocate(3 * k_page_bytes, false);
  copy(**second, (*second)->data() + 1, device, (*block)->data() + 77, bytes.size());  // device to device
  std::fill(back.begin(), back.end(), std::byte{0});
  (*second)->read(back.data(), (*second)->data() + 1, back.size());
  CHECK(back == bytes);
}

TEST_CASE("F147 hbm: its capacity is counted, and refused beyond with what is needed and free") {
  HbmHeap none(0);
  CHECK(none.allocate(1, true).error().code == ErrorCode::unsupported);
  HbmHeap heap(k_capacity);
  CHECK(heap.allocate(0, false).error().code == ErrorCode::invalid_argument);
  for (const std::size_t size : {k_capacity + 1, std::size_t{1} << 62U, ~std::size_t{0}}) {
    const auto refused = heap.allocate(size, false);
    REQUIRE(!refused.has_value());
    CHECK(refused.error().code == ErrorCode::no_memory);
    CHECK(refused.error().detail.limit < size);
  }
  auto first = heap.allocate(10 * k_page_bytes, false);
  REQUIRE(first.has_value());
  const auto refused = heap.allocate(7 * k_page_bytes, false);
  CHECK(refused.error().code == ErrorCode::no_memory);
  CHECK(refused.error().detail.length == 7 * k_page_bytes);
  CHECK(refused.error().detail.limit == 6 * k_page_bytes);
  CHECK(heap.usage().used == 10 * k_page_bytes);

  auto spilled = heap.allocate(7 * k_page_bytes, true);
  REQUIRE(spilled.has_value());
  CHECK((*spilled)->spilled_bytes() == k_page_bytes);
  CHECK(heap.usage().used == k_capacity);
  CHECK(heap.usage().spilled == k_page_bytes);
  const auto bytes = noise(7 * k_page_bytes, 3);
  std::vector<std::byte> back(bytes.size());
  (*spilled)->write((*spilled)->data(), bytes.data(), bytes.size());
  (*spilled)->read(back.data(), (*spilled)->data(), back.size());
  CHECK(back == bytes);

  first->reset();
  spilled->reset();
  CHECK(heap.usage().used == 0);
  CHECK(heap.usage().spilled == 0);
  CHECK(heap.allocate(k_capacity, false).has_value());
}

TEST_CASE("hbm: a region table gives it, finds it, and takes it back") {
  auto table = make_table();
  const auto region = table->allocate(4 * k_page_bytes, k_hbm);
  REQUIRE(region.has_value());
  CHECK(region->window_id == 0);
  CHECK(region->owned);
  CHECK(region->device->caps().kind == MemoryKind::hbm);
  CHECK(table->window_fd(1).fd == -1);  // its number among the table's memory is no window
  CHECK(table->pin(region->data + 10, 100)->device().caps().kind == MemoryKind::hbm);
  CHECK(table->pin(region->data + 10, 100, Rights::write).has_value());
  CHECK(table->check(region->key, region->token, 5, 10, Rights::write)->device == region->device);

  // A part of it, registered as any memory would be, is device memory as well.
  const auto part = table->add(region->data + k_page_bytes, k_page_bytes, {.tag = 5});
  REQUIRE(part.has_value());
  CHECK(part->device == region->device);
  CHECK(part->window_id == 0);
  CHECK(table->add(region->data + k_page_bytes, k_page_bytes, {.tag = 5})->key == part->key);
  CHECK(table->add(region->data + k_page_bytes, 8 * k_page_bytes, {}).error().kind() == ErrorKind::fix_call);

  REQUIRE(table->close(region->key).value());
  CHECK(table->retire(region->key, false).empty());
  CHECK(table->hbm_usage().used == 4 * k_page_bytes);
  part->device->write(part->data, noise(8, 1).data(), 8);
  REQUIRE(!table->close(part->key).value());
  REQUIRE(table->close(part->key).value());
  {
    const LeavingWindow leaving = table->retire(part->key, false);
    CHECK(!leaving.empty());
    CHECK(leaving.id() == 0);  // no peer has to hear of it
  }
  CHECK(table->hbm_usage().used == 0);
}

TEST_CASE("hbm: only ranges that touch it are on the device") {
  auto table = make_table();
  std::byte host[64];
  CHECK(!table->on_device(host, 64));
  const auto region = table->allocate(2 * k_page_bytes, k_hbm);
  const auto window = table->allocate(k_page_bytes, {});
  CHECK(table->on_device(region->data, 1));
  CHECK(table->on_device(region->data - 1, 2));
  CHECK(!table->on_device(region->data - 1, 1));
  CHECK(table->on_device(region->data + 2 * k_page_bytes - 1, 64));
  CHECK(!table->on_device(region->data + 2 * k_page_bytes, 64));
  CHECK(!table->on_device(window->data, k_page_bytes));
  CHECK(!table->on_device(host, 64));
  CHECK(table->on_device(nullptr, ~std::size_t{0}));
}

TEST_CASE("hbm: what only host memory has is refused") {
  auto table = make_table();
  for (AllocateOptions options : {AllocateOptions{.huge_pages = HugePages::prefer}, AllocateOptions{.numa_node = 0}}) {
    options.kind = MemoryKind::hbm;
    CHECK(table->allocate(k_page_bytes, options).error().code == ErrorCode::invalid_argument);
  }
  CHECK(table->allocate(k_page_bytes, {.kind = static_cast<MemoryKind>(9)}).error().code ==
        ErrorCode::invalid_argument);
}
