// SPDX-License-Identifier: Apache-2.0
//
// SparseArray: an array sized for its limit whose pages cost nothing until they are touched. Elements never move and
// are never freed before the array, so that readers without a lock may hold on to them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <type_traits>

namespace hixl::memory {

/// `T` must be usable when all its bytes are zero. Size 0 when the system refuses the address space.
template <class T>
class SparseArray {
 public:
  explicit SparseArray(std::size_t size) noexcept {
    static_assert(std::is_trivially_destructible_v<T>);
    if (size == 0 || size > PTRDIFF_MAX / sizeof(T)) return;
    void* pages =
        ::mmap(nullptr, size * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return;
    data_ = static_cast<T*>(pages);
    size_ = size;
  }
  SparseArray(const SparseArray&) = delete;
  SparseArray& operator=(const SparseArray&) = delete;
  ~SparseArray() {
    if (data_ != nullptr) ::munmap(data_, size_ * sizeof(T));
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] T& operator[](std::size_t index) noexcept { return data_[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data_[index]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hixl::memory
