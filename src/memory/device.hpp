// SPDX-License-Identifier: Apache-2.0
//
// Device: what a region's bytes live on. Outside src/memory nobody dereferences a region's bytes; copies, checksums,
// signal words and atomics go through here. What a device can do is data.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hixl/types.hpp>

#include "base/bytes.hpp"

namespace hixl::memory {

struct DeviceCaps {
  bool cpu_addressable = false;  ///< the CPU may load and store the bytes at their address
  bool atomic_capable = false;   ///< 8-byte CPU atomics work on it
  bool mappable = false;         ///< a peer process can map it
  const char* name = "";
  MemoryKind kind = MemoryKind::host;
};

/// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceCaps& caps() const noexcept = 0;
  /// dst is on this device, src is host memory.
  virtual void write(std::byte* dst, const std::byte* src, std::size_t size) noexcept = 0;
  /// src is on this device, dst is host memory.
  virtual void read(std::byte* dst, const std::byte* src, std::size_t size) noexcept = 0;
};

/// Ordinary memory: write and read are the CPU's copy.
[[nodiscard]] Device& host_device() noexcept;

/// Copies `size` bytes between two regions' devices; the fast path when both are host memory.
void copy(Device& to, std::byte* dst, Device& from, const std::byte* src, std::size_t size) noexcept;

/// Store (or add) of an aligned 8-byte word after all earlier copies of this thread; seq_cst, signal_page.hpp says why.
/// Device must be atomic_capable, here and below.
void store_word(Device& device, std::byte* word, std::uint64_t value) noexcept;
void add_word(Device& device, std::byte* word, std::uint64_t value) noexcept;
/// Change such a word and give its value before; seq_cst. Atomic with each other, with the functions above, and with
/// every CPU that maps the word, in this process or another. Sums wrap.
[[nodiscard]] std::uint64_t fetch_add_word(Device& device, std::byte* word, std::uint64_t value) noexcept;
[[nodiscard]] std::uint64_t swap_word(Device& device, std::byte* word, std::uint64_t value) noexcept;
/// Stores `desired` if the word holds `expected`, else changes nothing.
[[nodiscard]] std::uint64_t compare_swap_word(Device& device, std::byte* word, std::uint64_t expected,
                                              std::uint64_t desired) noexcept;
[[nodiscard]] std::uint64_t load_word(Device& device, const std::byte* word) noexcept;

}  // namespace hixl::memory
