// SPDX-License-Identifier: Apache-2.0
//
// A device whose memory no socket and no CPU can use.
#pragma once

#include "tcp_world.hpp"

namespace hixl::test {

/// Memory at addresses that nobody has mapped, of a device that counts what is asked of it.
struct FarDevice final : memory::Device {
  static constexpr std::uintptr_t k_base = 0x1000;  // below what any process maps
  explicit FarDevice(std::size_t size) : bytes(size) {}
  [[nodiscard]] const memory::DeviceCaps& caps() const noexcept override { return caps_; }
  void write(std::byte* dst, const std::byte* src, std::size_t size) noexcept override {
    std::copy_n(src, size, bytes.begin() + offset_of(dst));
    ++writes;
  }
  void read(std::byte* dst, const std::byte* src, std::size_t size) noexcept override {
    std::copy_n(bytes.begin() + offset_of(src), size, dst);
    ++reads;
  }
  [[nodiscard]] static std::byte* address(std::size_t offset) { return reinterpret_cast<std::byte*>(k_base + offset); }
  [[nodiscard]] static std::ptrdiff_t offset_of(const std::byte* address) {
    return static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(address) - k_base);
  }
  memory::DeviceCaps caps_{.name = "far"};
  ByteVector bytes;
  int writes = 0;
  int reads = 0;
};

}  // namespace hixl::test
