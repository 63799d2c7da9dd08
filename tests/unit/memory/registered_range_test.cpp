// SPDX-License-Identifier: Apache-2.0
//
// P26: ranges that a program registers, and what becomes of each odd one.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

#include "memory/mapping.hpp"
#include "memory/region_table.hpp"

using namespace hixl;
using namespace hixl::memory;

namespace {

constexpr std::size_t k_page_bytes = 4096;

/// Pages of the test's own, one mapping for each protection change.
struct Pages {
  explicit Pages(std::size_t count, int protection = PROT_READ | PROT_WRITE)
      : size(count * k_page_bytes),
        data(static_cast<std::byte*>(mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(data != MAP_FAILED);
  }
  ~Pages() { munmap(data, size); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  void protect(std::size_t page, int protection) const {
    REQUIRE(mprotect(data + page * k_page_bytes, k_page_bytes, protection) == 0);
  }
  std::size_t size;
  std::byte* data;
};

std::unique_ptr<RegionTable> make_table() {
  auto table = RegionTable::create(64, 1);
  REQUIRE(table.has_value());
  return std::move(*table);
}

}  // namespace

TEST_CASE("P26 overlapping ranges are regions of their own; an address means the newest that holds the range") {
  auto table = make_table();
  const Pages pages(4);
  const auto lower = table->add(pages.data, 3 * k_page_bytes, {});
  const auto upper = table->add(pages.data + k_page_bytes, 3 * k_page_bytes, {});
  REQUIRE((lower.has_value() && upper.has_value()));
  CHECK(lower->key != upper->key);
  CHECK(table->find(pages.data + k_page_bytes, 8)->key == upper->key);
  CHECK(table->find(pages.data, 2 * k_page_bytes)->key == lower->key);
  CHECK(table->find(pages.data, 4 * k_page_bytes).error().code == ErrorCode::out_of_range);
}

TEST_CASE("P26 the same range again is the same region, once more") {
  auto table = make_table();
  const Pages pages(1);
  const auto first = table->add(pages.data, k_page_bytes, {.tag = 1});
  CHECK(table->add(pages.data, k_page_bytes, {.tag = 1})->key == first->key);
  CHECK(table->add(pages.data, k_page_bytes, {.tag = 2})->key != first->key);
  CHECK(table->add(pages.data, k_page_bytes, {.rights = Rights::read, .tag = 1})->key != first->key);
  CHECK(!table->close(first->key).value());
  CHECK(table->close(first->key).value());
}

TEST_CASE("P26 empty, wrapping and unmapped ranges are refused") {
  auto table = make_table();
  const Pages pages(3);
  CHECK(table->add(pages.data, 0, {}).error().code == ErrorCode::invalid_argument);
  CHECK(table->add(nullptr, 0, {}).error().code == ErrorCode::invalid_argument);
  CHECK(table->add(nullptr, 8, {}).error().code == ErrorCode::memory_unmapped);
  CHECK(table->add(pages.data, std::numeric_limits<std::size_t>::max(), {}).error().code == ErrorCode::out_of_range);
  CHECK(table->add(pages.data, std::size_t{1} << 47U, {}).error().code == ErrorCode::memory_unmapped);
  REQUIRE(munmap(pages.data + k_page_bytes, k_page_bytes) == 0);
  const auto hole = table->add(pages.data, 3 * k_page_bytes, {});
  CHECK(hole.error().code == ErrorCode::memory_unmapped);
  CHECK(hole.error().detail.address == reinterpret_cast<std::uint64_t>(pages.data));
  CHECK(table->add(pages.data + k_page_bytes, 1, {}).error().code == ErrorCode::memory_unmapped);
  CHECK(table->add(pages.data + 2 * k_page_bytes, k_page_bytes, {}).has_value());
}

TEST_CASE("P26 what cannot be written is registered for reading only, and takes no local writes either") {
  auto table = make_table();
  const Pages pages(3);
  pages.protect(1, PROT_READ);
  CHECK(table->add(pages.data, 3 * k_page_bytes, {}).error().code == ErrorCode::access_denied);
  CHECK(table->add(pages.data + k_page_bytes, 8, {.rights = Rights::atomic}).error().code == ErrorCode::access_denied);
  const auto region = table->add(pages.data, 3 * k_page_bytes, {.rights = Rights::read});
  REQUIRE(region.has_value());
  CHECK(table->pin(pages.data, 8).has_value());
  const auto refused = table->pin(pages.data, 8, Rights::write);
  CHECK(refused.error().code == ErrorCode::access_denied);
  CHECK(refused.error().detail.nearest_length == 3 * k_page_bytes);
  CHECK(table->unpinned(region->key) == false);  // open
  REQUIRE(table->close(region->key).value());
  CHECK(table->unpinned(region->key));  // the refused pin left nothing behind
  pages.protect(2, PROT_NONE);
  CHECK(table->add(pages.data + 2 * k_page_bytes, 8, {.rights = Rights::none}).error().code ==
        ErrorCode::access_denied);
}

TEST_CASE("P26 files: as long as the file is; what lies behind its end would be SIGBUS") {
  auto table = make_table();
  const int fd = memfd_create("hixl-test", MFD_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(ftruncate(fd, 2 * k_page_bytes) == 0);
  auto* data = static_cast<std::byte*>(mmap(nullptr, 4 * k_page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  REQUIRE(data != MAP_FAILED);
  CHECK(table->add(data, 2 * k_page_bytes, {}).has_value());
  const auto beyond = table->add(data, 2 * k_page_bytes + 1, {});
  REQUIRE(!beyond.has_value());
  CHECK(beyond.error().code == ErrorCode::memory_unmapped);
  munmap(data, 4 * k_page_bytes);

  auto* shown = static_cast<std::byte*>(mmap(nullptr, k_page_bytes, PROT_READ, MAP_SHARED, fd, 0));
  CHECK(table->add(shown, k_page_bytes, {.rights = Rights::read}).has_value());
  CHECK(table->add(shown, k_page_bytes, {}).error().code == ErrorCode::access_denied);
  munmap(shown, k_page_bytes);
  close(fd);
}

TEST_CASE("P26 a program's own huge pages") {
  constexpr std::size_t k_huge_bytes = 2U << 20U;
  void* data = mmap(nullptr, k_huge_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (data == MAP_FAILED) {
    MESSAGE("skipped: no huge pages are free here");
    return;
  }
  auto table = make_table();
  CHECK(table->add(static_cast<std::byte*>(data) + 100, k_huge_bytes - 200, {}).has_value());
  munmap(data, k_huge_bytes);
}

TEST_CASE("what the kernel says of a range") {
  const Pages pages(4);
  pages.protect(2, PROT_READ);
  CHECK(protection_of(pages.data, 2 * k_page_bytes)->writable);
  CHECK(!protection_of(pages.data, 2 * k_page_bytes + 1)->writable);
  CHECK(protection_of(pages.data, 4 * k_page_bytes)->readable);
  CHECK(is_mapped(pages.data, pages.size));
  CHECK(!is_mapped(pages.data, std::size_t{1} << 46U));
  CHECK(!is_mapped(pages.data, std::numeric_limits<std::size_t>::max()));
}
