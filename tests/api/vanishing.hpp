// SPDX-License-Identifier: Apache-2.0
//
// Pages that a test takes away under their registration, at a place where nothing else of the process comes to lie
// afterwards: what is mapped anew there cannot be told from the old, and would be written to.
#pragma once

#include <sys/mman.h>

#include <cstddef>

#include <doctest/doctest.h>

namespace hixl::test {

/// One at a time.
class Vanishing {
 public:
  explicit Vanishing(std::size_t bytes)
      : bytes_(bytes),
        // Far below where the kernel begins, and where sanitizers leave room too.
        data_(static_cast<std::byte*>(mmap(reinterpret_cast<void*>(0x4000'0000), bytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0))) {
    REQUIRE(data_ != MAP_FAILED);
  }
  ~Vanishing() { vanish(); }
  Vanishing(const Vanishing&) = delete;
  Vanishing& operator=(const Vanishing&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  void vanish() noexcept { munmap(data_, bytes_); }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

}  // namespace hixl::test
