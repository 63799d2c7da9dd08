// SPDX-License-Identifier: Apache-2.0
//
// Windows: what is refused, and that nothing ends in a signal or stays behind.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "memory/hbm.hpp"
#include "memory/memory_limit.hpp"
#include "memory/region_table.hpp"
#include "memory/remote_table.hpp"
#include "memory/window.hpp"

using namespace hixl;
using namespace hixl::memory;

namespace {

constexpr std::size_t k_page_bytes = 4096;

int raw_memfd(std::size_t size, unsigned seals) {
  const int fd = memfd_create("hixl-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(fd >= 0);
  REQUIRE(ftruncate(fd, static_cast<off_t>(size)) == 0);
  if (seals != 0) REQUIRE(fcntl(fd, F_ADD_SEALS, seals) == 0);
  return fd;
}

/// Exit status of `body` run in a child; -1 when a signal ended it.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(body());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a window is zeroed, rounded up to pages, allocated and sealed") {
  auto window = Window::create(k_page_bytes + 1, "test");
  REQUIRE(window);
  CHECK((*window)->size() == 2 * k_page_bytes);
  for (std::size_t i = 0; i < (*window)->size(); ++i) REQUIRE((*window)->data()[i] == std::byte{0});
  struct stat status {};
  REQUIRE(fstat((*window)->fd(), &status) == 0);
  CHECK(static_cast<std::size_t>(status.st_blocks) * 512 >= (*window)->size());
  CHECK(ftruncate((*window)->fd(), 0) == -1);
  CHECK(ftruncate((*window)->fd(), 1 << 20) == -1);
  CHECK(fcntl((*window)->fd(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
  CHECK((fcntl((*window)->fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a window that cannot be is an error with the limit, at once") {
  CHECK(Window::create(0, "test").error().code == ErrorCode::invalid_argument);
  for (const std::size_t size : {std::size_t{1} << 60U, std::numeric_limits<std::size_t>::max()}) {
    const auto window = Window::create(size, "test");
    REQUIRE(!window);
    CHECK(window.error().code == ErrorCode::no_memory);
    CHECK(window.error().detail.limit > 0);
    CHECK(window.error().detail.limit < size);
    CHECK(window.error().detail.length >= size);
  }
}

TEST_CASE("a limit of file size is answered by an error, not by SIGXFSZ") {
  const int status = in_child([] {
    const rlimit limit{1U << 20U, 1U << 20U};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    const auto window = Window::create(2U << 20U, "test");
    if (window || window.error().code != ErrorCode::limit_reached) return 2;
    if (window.error().detail.limit != 1U << 20U) return 3;
    // Not a limit of the options, as most are.
    return window.error().message().ends_with("raise the limit of file size (ulimit -f)") ? 0 : 4;
  });
  CHECK(status == 0);
}

TEST_CASE("F178 a limit of address space is named, with what to do about it: memory may well be free") {
  const int status = in_child([] {
    std::ifstream file("/proc/self/statm");
    rlim_t pages = 0;
    file >> pages;
    const rlim_t bytes = pages * k_page_bytes + (16U << 20U);
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    const auto told = [&](const Error& error, std::size_t least) {
      return error.code == ErrorCode::no_memory && error.detail.os_error == ENOMEM && error.detail.limit == bytes &&
             error.detail.length >= least &&
             error.message().ends_with("raise the limit of address space (ulimit -v), or ask for less");
    };
    constexpr std::size_t k_much = 64U << 20U;
    const auto window = Window::create(k_much, "test");
    if (window || !told(window.error(), k_much)) return 2;
    HbmHeap heap(k_much);
    const auto block = heap.allocate(k_much, false);
    if (block || !told(block.error(), k_much)) return 3;
    const auto table = RegionTable::create(1U << 20U, 1);
    if (table || !told(table.error(), k_much)) return 4;
    RemoteTable remote(1U << 20U);
    const auto added = remote.add({.rank = 1, .incarnation = 2, .key = {1, 1}, .base = 64, .length = 64});
    return !added && told(added.error(), 64) ? 0 : 5;
  });
  CHECK(status == 0);
}

TEST_CASE("no descriptor left is FD_LIMIT") {
  const int status = in_child([] {
    const rlimit limit{0, 0};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
    const auto window = Window::create(k_page_bytes, "test");
    return !window && window.error().code == ErrorCode::fd_limit ? 0 : 2;
  });
  CHECK(status == 0);
}

TEST_CASE("mapping refuses what could raise SIGBUS") {
  const auto refused = [](int fd, std::size_t size, bool writable) {
    const auto mapped = MappedWindow::map(fd, size, writable);
    return !mapped && mapped.error().code == ErrorCode::access_denied;
  };
  const int unsealed = raw_memfd(k_page_bytes, 0);
  CHECK(refused(unsealed, k_page_bytes, true));
  const int grow_only = raw_memfd(k_page_bytes, F_SEAL_GROW);
  CHECK(refused(grow_only, k_page_bytes, false));
  const int sealed = raw_memfd(k_page_bytes, F_SEAL_SHRINK);
  CHECK(refused(sealed, k_page_bytes + 1, true));
  CHECK(!refused(sealed, k_page_bytes, true));
  CHECK(MappedWindow::map(sealed, 0, true).error().code == ErrorCode::invalid_argument);
  const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
  CHECK(refused(file, k_page_bytes, true));
  CHECK(refused(-1, k_page_bytes, true));
  for (const int fd : {unsealed, grow_only, sealed, file}) close(fd);
}

TEST_CASE("a read-only descriptor maps for reading only") {
  auto window = Window::create(k_page_bytes, "test");
  REQUIRE(window);
  const int fd = (*window)->read_only_fd();
  REQUIRE(fd >= 0);
  CHECK(fd == (*window)->read_only_fd());
  const auto writable = MappedWindow::map(fd, k_page_bytes, true);
  REQUIRE(!writable);
  CHECK(writable.error().code == ErrorCode::access_denied);
  const auto readable = MappedWindow::map(fd, k_page_bytes, false);
  REQUIRE(readable);
  (*window)->data()[7] = std::byte{42};
  CHECK((*readable)->data()[7] == std::byte{42});
}

TEST_CASE("a mapping outlives its maker") {
  auto window = Window::create(k_page_bytes, "test");
  REQUIRE(window);
  auto mapped = MappedWindow::map((*window)->fd(), k_page_bytes, true);
  REQUIRE(mapped);
  (*window)->data()[1] = std::byte{9};
  window->reset();
  CHECK((*mapped)->data()[1] == std::byte{9});
}

TEST_CASE("a mapping is given back in pieces, from its end") {
  auto window = Window::create(40 * k_page_bytes, "test");
  REQUIRE(window);
  auto mapped = MappedWindow::map((*window)->fd(), 40 * k_page_bytes, true);
  REQUIRE(mapped);
  (*window)->data()[0] = std::byte{7};
  const auto is_there = [&](std::size_t page) {
    unsigned char resident = 0;
    return mincore((*mapped)->data() + page * k_page_bytes, k_page_bytes, &resident) == 0;
  };
  for (const std::size_t left : {32, 16}) {
    CHECK_FALSE((*mapped)->shrink(16 * k_page_bytes));
    CHECK((*mapped)->size() == left * k_page_bytes);
    CHECK(is_there(left - 1));
    CHECK_FALSE(is_there(left));
  }
  CHECK((*mapped)->shrink(16 * k_page_bytes));  // the rest is for the destructor
  CHECK((*mapped)->data()[0] == std::byte{7});
}

TEST_CASE("a child sees neither a window nor a mapping of one") {
  auto window = Window::create(k_page_bytes, "test");
  auto mapped = MappedWindow::map((*window)->fd(), k_page_bytes, true);
  REQUIRE(mapped);
  unsigned char resident = 0;
  REQUIRE(mincore((*window)->data(), k_page_bytes, &resident) == 0);
  REQUIRE(mincore((*mapped)->data(), k_page_bytes, &resident) == 0);
  const int status = in_child([&] {
    unsigned char page = 0;  // ENOMEM: nothing is mapped there
    const bool window_gone = mincore((*window)->data(), k_page_bytes, &page) == -1 && errno == ENOMEM;
    const bool mapping_gone = mincore((*mapped)->data(), k_page_bytes, &page) == -1 && errno == ENOMEM;
    return window_gone && mapping_gone ? 0 : 1;
  });
  CHECK(status == 0);
}

TEST_CASE("nothing is left in /dev/shm") {
  auto window = Window::create(k_page_bytes, "nothing-left");
  REQUIRE(window);
  if (!std::filesystem::exists("/dev/shm")) return;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    CHECK(entry.path().string().find("nothing-left") == std::string::npos);
  }
}

TEST_CASE("control groups: the smallest of all above, page cache given back") {
  char name[] = "/tmp/hixl-groups-XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  const std::filesystem::path root(name);
  const auto put = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  put("a/b/memory.max", "max\n");
  put("a/memory.max", "1000\n");
  put("a/memory.current", "700\n");
  put("a/memory.stat", "anon 1\ninactive_file 50\n");
  put("memory/x/memory.limit_in_bytes", "500\n");
  put("memory/x/memory.usage_in_bytes", "600\n");
  constexpr std::uint64_t k_unlimited = std::numeric_limits<std::uint64_t>::max();
  const std::string at = root.string();
  CHECK(group_available_bytes("0::/a/b\n", at) == 350);
  CHECK(group_available_bytes("0::/a\n", at) == 350);
  CHECK(group_available_bytes("0::/\n", at) == k_unlimited);
  CHECK(group_available_bytes("0::/only/on/the/host\n", at) == k_unlimited);
  CHECK(group_available_bytes("4:cpu,memory:/x/y\n0::/a\n", at) == 0);
  CHECK(group_available_bytes("4:memoryless:/x\n", at) == k_unlimited);
  CHECK(group_available_bytes("nonsense\n::\n", at) == k_unlimited);
  CHECK(available_bytes() > 0);
  std::filesystem::remove_all(root);
}
