// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says about a range of this process' addresses.
#pragma once

#include <cstddef>

#include <hixl/result.hpp>

namespace hixl::memory {

/// Whether each page of the range is mapped. The cost does not depend on the size.
[[nodiscard]] bool is_mapped(const void* data, std::size_t size) noexcept;

/// What the CPU may do with every page of a range.
struct Protection {
  bool readable = false;
  bool writable = false;
};
/// MEMORY_UNMAPPED where nothing is mapped, or a file that is mapped ends before the range does (a touch would be
/// SIGBUS). A few µs; some more for each mapping of the process on kernels before 6.11. The range must not wrap.
[[nodiscard]] Result<Protection> protection_of(const void* data, std::size_t size);

}  // namespace hixl::memory
