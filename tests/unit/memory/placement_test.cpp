// SPDX-License-Identifier: Apache-2.0
//
// Where pages are and what they are: NUMA nodes, huge pages, core dumps.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "memory/board.hpp"
#include "memory/lane.hpp"
#include "memory/memory_limit.hpp"
#include "memory/numa.hpp"
#include "memory/private_pages.hpp"
#include "memory/region_table.hpp"
#include "memory/signal_page.hpp"

using namespace hixl;
using namespace hixl::memory;

namespace {

constexpr std::size_t k_page_bytes = 4096;

/// The flags that the kernel shows for the mapping that holds `address`.
std::string flags_of(const std::byte* address) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    if (const std::size_t dash = line.find('-'); dash != 0 && dash == line.find_first_not_of("0123456789abcdef")) {
      const auto begin = std::stoull(line.substr(0, dash), nullptr, 16);
      const auto end = std::stoull(line.substr(dash + 1), nullptr, 16);
      const auto wanted = reinterpret_cast<std::uint64_t>(address);
      here = wanted >= begin && wanted < end;
    }
    if (here && line.starts_with("VmFlags:")) return line + " ";
  }
  return "no such mapping";
}

bool undumped(const std::byte* address) {
  const std::string flags = flags_of(address);
  CAPTURE(flags);
  return flags.find(" dd ") != std::string::npos;
}

/// The node of a page as move_pages(2) tells; -1 when it does not.
int node_by_move_pages(std::byte* address) {
  void* pages[] = {address};
  int status[] = {-1};
  return syscall(SYS_move_pages, 0, 1UL, pages, nullptr, status, 0) == 0 ? status[0] : -1;
}

}  // namespace

TEST_CASE("windows and buffers are not in core dumps, on either side, and buffers not in forked children") {
  auto window = Window::create(k_page_bytes, "test");
  REQUIRE(window);
  CHECK(undumped((*window)->data()));
  const auto mapped = MappedWindow::map((*window)->fd(), k_page_bytes, true);
  REQUIRE(mapped);
  CHECK(undumped((*mapped)->data()));
  const auto board = Board::create(16);
  CHECK(undumped((*board)->window().data()));
  const auto signals = SignalPage::create();
  CHECK(undumped((*signals)->window().data()));
  const auto door = LaneDoor::create(7);
  CHECK(undumped((*door)->window().data()));
  const PrivatePages pages(16 * k_page_bytes);
  REQUIRE(pages.data() != nullptr);
  pages.data()[0] = std::byte{1};
  CHECK(flags_of(pages.data()).find(" dd ") != std::string::npos);
  CHECK(flags_of(pages.data()).find(" dc ") != std::string::npos);  // nor in forked children
}

TEST_CASE("F148 numa: lists of nodes") {
  CHECK(parse_node_list("0") == std::vector<int>{0});
  CHECK(parse_node_list("0-2,5\n") == std::vector<int>{0, 1, 2, 5});
  CHECK(parse_node_list("").empty());
  CHECK(parse_node_list("x").empty());
  CHECK(parse_node_list("0-").empty());
  CHECK(parse_node_list("99999").empty());
  CHECK(!numa_nodes().empty());
}

TEST_CASE("F148 numa: memory is on the node that was asked for, a node that is none is named") {
  const std::vector<int> nodes = numa_nodes();
  for (const int node : nodes) {
    CAPTURE(node);
    auto window = Window::create(8 * k_page_bytes, "test", {.numa_node = node});
    if (!window && window.error().code == ErrorCode::unsupported) {
      MESSAGE("skipped: this system lets nobody choose a node");
      return;
    }
    REQUIRE(window);
    for (std::size_t at = 0; at < (*window)->size(); at += k_page_bytes) {
      const int there = node_by_move_pages((*window)->data() + at);
      if (there >= 0) CHECK(there == node);
    }
    if ((*window)->numa_node() != k_no_numa_node) CHECK((*window)->numa_node() == node);
  }
  for (const int node : {nodes.back() + 1, -3, 1 << 20}) {
    const auto refused = Window::create(k_page_bytes, "test", {.numa_node = node});
    REQUIRE(!refused);
    CHECK(refused.error().code == ErrorCode::invalid_argument);
    CHECK(static_cast<int>(refused.error().detail.length) == node);
    CHECK(refused.error().detail.limit == nodes.size());
  }
  auto automatic = Window::create(k_page_bytes, "test", {.numa_node = k_numa_auto});
  CHECK(automatic);
  auto none = Window::create(k_page_bytes, "test");
  CHECK((*none)->numa_node() == k_no_numa_node);
  // More than a node has would be killed for, not refused, by the kernel.
  const std::uint64_t left = node_available_bytes(nodes.front());
  if (left < std::uint64_t{1} << 46U) {
    const auto refused = check_numa_node(nodes.front(), (std::uint64_t{1} << 46U));
    CHECK(refused.error().code == ErrorCode::no_memory);
    CHECK(refused.error().detail.limit > 0);
  }
}

TEST_CASE("F150 huge pages: used when the system has them, else told") {
  const std::size_t huge = huge_page_bytes();
  CHECK(huge >= 64U << 10U);
  const std::uint64_t free_bytes = free_huge_page_bytes();
  const auto require = Window::create(huge + 1, "test", {.huge_pages = HugePages::require});
  auto prefer = Window::create(huge + 1, "test", {.huge_pages = HugePages::prefer});
  REQUIRE(prefer);
  CHECK((*prefer)->page_bytes() == (require ? (*prefer)->page_bytes() : k_page_bytes));
  CHECK((*prefer)->size() % (*prefer)->page_bytes() == 0);
  (*prefer)->data()[huge] = std::byte{1};
  if (require) {
    CHECK((*require)->page_bytes() == huge);
    CHECK((*require)->size() == 2 * huge);
    CHECK((*require)->data()[2 * huge - 1] == std::byte{0});
    CHECK(flags_of((*require)->data()).find(" ht ") != std::string::npos);
    const auto mapped = MappedWindow::map((*require)->fd(), (*require)->size(), true);
    REQUIRE(mapped);
    (*mapped)->data()[huge + 5] = std::byte{9};
    CHECK((*require)->data()[huge + 5] == std::byte{9});
    (*require)->give_back(huge, huge);
    CHECK((*mapped)->data()[huge + 5] == std::byte{0});
  } else {
    MESSAGE("no huge pages here: " << free_bytes << " bytes are free in them");
    CHECK(require.error().code == ErrorCode::huge_pages_missing);
    CHECK(require.error().detail.length == 2 * huge);
    CHECK(require.error().message().find("nr_hugepages") != std::string::npos);
  }
  const auto endless = Window::create(std::size_t{1} << 46U, "test", {.huge_pages = HugePages::require});
  REQUIRE(!endless);
  CHECK(endless.error().code == ErrorCode::huge_pages_missing);
  CHECK(endless.error().detail.limit < endless.error().detail.length);
}
