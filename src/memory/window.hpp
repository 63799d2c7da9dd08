// SPDX-License-Identifier: Apache-2.0
//
// Windows: sealed memfds that peers on this host map. Also used for the small pages that two processes share.
// No names: nothing is left behind when a process dies. Not in core dumps, on either side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <hixl/memory.hpp>
#include <hixl/result.hpp>

#include "base/bytes.hpp"

namespace hixl::memory {

struct WindowOptions {
  bool reserve = true;  ///< false leaves pages unallocated until touched (for sparse tables only)
  HugePages huge_pages = HugePages::none;
  int numa_node = k_no_numa_node;
};

/// Made by this process. MFD_CLOEXEC, sealed against shrink, grow and further seals; all pages are there
/// (posix_fallocate, so never SIGBUS), zeroed, kept out of children (MADV_DONTFORK) and dumps (MADV_DONTDUMP).
class Window {
 public:
  /// NO_MEMORY (limit: what is available, control groups and the NUMA node included; with ENOMEM RLIMIT_AS, if it is
  /// set), LIMIT_REACHED (limit: RLIMIT_FSIZE), NO_SPACE, FD_LIMIT, HUGE_PAGES_MISSING (limit: free bytes in such
  /// pages), OS_ERROR; UNSUPPORTED when the system lets nobody choose a NUMA node; INVALID_ARGUMENT for size 0 or a
  /// NUMA node that is none (limit: how many there are). The size is rounded up to pages.
  [[nodiscard]] static Result<std::unique_ptr<Window>> create(std::size_t size, const char* label,
                                                              const WindowOptions& options = {});
  ~Window();
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return page_bytes_; }
  [[nodiscard]] int numa_node() const noexcept { return numa_node_; }  ///< k_no_numa_node unless one was asked for
  /// Stays owned by the window.
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// A second descriptor that can only be mapped for reading (opened through /proc/self/fd); -1 with errno on failure.
  /// Owned by the window.
  [[nodiscard]] int read_only_fd();
  /// The pages of [offset, offset + bytes) go back to the system; whoever still maps them reads zeros. Where the system
  /// cannot do that, and huge pages, are overwritten. Offsets and bytes in whole ordinary pages.
  void give_back(std::size_t offset, std::size_t bytes) noexcept;

 private:
  Window() = default;
  [[nodiscard]] Result<void> make(std::size_t size, const char* label, const WindowOptions& options,
                                  std::size_t huge_page_bytes);
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t page_bytes_ = 0;
  int numa_node_ = k_no_numa_node;
  int fd_ = -1;
  int read_only_fd_ = -1;
};

/// Another process' window, mapped here. Refuses (ACCESS_DENIED) a descriptor that is not a memfd sealed against
/// shrinking, or smaller than `size`. Keeps the memory alive until destroyed, whatever happens to its maker.
class MappedWindow {
 public:
  [[nodiscard]] static Result<std::unique_ptr<MappedWindow>> map(int fd, std::size_t size, bool writable);
  ~MappedWindow();
  /// Lets go of the other process' memory and puts private zero pages in its place, so that a late access through an
  /// old pointer hits nothing and nobody. The range stays taken until this object is destroyed.
  void detach() noexcept;
  /// Nobody uses it any more: unmaps the last `bytes` or so of it. True when it may be destroyed at no cost, or cannot
  /// be unmapped in pieces (pages larger than that).
  [[nodiscard]] bool shrink(std::size_t bytes) noexcept;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  MappedWindow() = default;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hixl::memory
