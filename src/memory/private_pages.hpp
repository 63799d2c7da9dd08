// SPDX-License-Identifier: Apache-2.0
//
// PrivatePages: memory of this process alone that holds payload on its way. Not in core dumps, nor in forked children:
// a page that a card has pinned must stay this process' page.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace hixl::memory {

/// Zeroed. Move-only value; the pages go with it.
class PrivatePages {
 public:
  PrivatePages() = default;
  /// Size 0 when the system refuses.
  explicit PrivatePages(std::size_t size) noexcept {
    if (size == 0) return;
    void* pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return;
    ::madvise(pages, size, MADV_DONTDUMP);
    ::madvise(pages, size, MADV_DONTFORK);
    data_ = static_cast<std::byte*>(pages);
    size_ = size;
  }
  PrivatePages(PrivatePages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PrivatePages& operator=(PrivatePages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PrivatePages() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hixl::memory
