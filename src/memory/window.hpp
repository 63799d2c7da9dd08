// SPDX-License-Identifier: Apache-2.0
//
// Windows: sealed memfds that peers on this host map. Also used for the small pages that two processes share.
// No names: nothing is left behind when a process dies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <hixl/result.hpp>

#include "base/bytes.hpp"

namespace hixl::memory {

/// Made by this process. MFD_CLOEXEC, sealed against shrink, grow and further seals; all pages are there
/// (posix_fallocate, so never SIGBUS), zeroed, kept out of children (MADV_DONTFORK).
class Window {
 public:
  /// NO_MEMORY (limit: what is available, control groups included), LIMIT_REACHED (limit: RLIMIT_FSIZE), NO_SPACE,
  /// FD_LIMIT, OS_ERROR; size is rounded up to pages; 0 is INVALID_ARGUMENT.
  /// `reserve` false leaves pages unallocated until touched (for sparse tables only).
  [[nodiscard]] static Result<std::unique_ptr<Window>> create(std::size_t size, const char* label, bool reserve = true);
  ~Window();
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Stays owned by the window.
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// A second descriptor that can only be mapped for reading (opened through /proc/self/fd); -1 with errno on failure.
  /// Owned by the window.
  [[nodiscard]] int read_only_fd();

 private:
  Window() = default;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
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
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  MappedWindow() = default;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hixl::memory
