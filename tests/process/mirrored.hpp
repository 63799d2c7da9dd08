// SPDX-License-Identifier: Apache-2.0
//
// Mirrored: a long range of addresses over few pages: one small memory file mapped again and again. Long copies cost
// time, not memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace hixl::test {

class Mirrored {
 public:
  static constexpr std::size_t k_pages_bytes = 4U << 20U;

  /// A multiple of k_pages_bytes. data() is null when the system refuses.
  explicit Mirrored(std::size_t bytes) : bytes_(bytes) {
    const int fd = memfd_create("mirrored", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, k_pages_bytes) != 0) return;
    void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return;
    data_ = static_cast<std::byte*>(range);
    for (std::size_t offset = 0; offset < bytes; offset += k_pages_bytes) {
      void* part =
          mmap(data_ + offset, k_pages_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0);
      if (part == MAP_FAILED) data_ = nullptr;
      if (data_ == nullptr) break;
    }
    ::close(fd);
  }
  ~Mirrored() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Mirrored(const Mirrored&) = delete;
  Mirrored& operator=(const Mirrored&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace hixl::test
