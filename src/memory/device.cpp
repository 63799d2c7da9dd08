// SPDX-License-Identifier: Apache-2.0
//
// The host's memory as a device, and copies between devices. The one place where payload bytes are copied.
#include "memory/device.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/assert.hpp"

namespace hixl::memory {
namespace {

/// Between two devices that the CPU cannot address, bytes pass through the stack in pieces of one page: small enough
/// for any thread's stack, large enough that the calls do not matter.
constexpr std::size_t k_bounce_bytes = 4096;

/// memmove, because a rank may copy between overlapping parts of its own memory; glibc runs the same code for both.
void copy_bytes(std::byte* dst, const std::byte* src, std::size_t size) noexcept {
  if (size != 0) std::memmove(dst, src, size);
}

class HostDevice final : public Device {
 public:
  [[nodiscard]] const DeviceCaps& caps() const noexcept override { return caps_; }
  void write(std::byte* dst, const std::byte* src, std::size_t size) noexcept override { copy_bytes(dst, src, size); }
  void read(std::byte* dst, const std::byte* src, std::size_t size) noexcept override { copy_bytes(dst, src, size); }

 private:
  DeviceCaps caps_{.cpu_addressable = true, .atomic_capable = true, .mappable = true, .name = "host"};
};

std::atomic_ref<std::uint64_t> word_at(Device& device, const std::byte* word) noexcept {
  HIXL_ASSERT(device.caps().atomic_capable);
  HIXL_ASSERT(reinterpret_cast<std::uintptr_t>(word) % sizeof(std::uint64_t) == 0);
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(word)));
}

}  // namespace

Device& host_device() noexcept {
  static HostDevice device;  // has no state: the same for everybody, for ever
  return device;
}

void copy(Device& to, std::byte* dst, Device& from, const std::byte* src, std::size_t size) noexcept {
  if (to.caps().cpu_addressable && from.caps().cpu_addressable) return copy_bytes(dst, src, size);
  if (from.caps().cpu_addressable) return to.write(dst, src, size);
  if (to.caps().cpu_addressable) return from.read(dst, src, size);
  std::array<std::byte, k_bounce_bytes> bounce;
  for (std::size_t done = 0; done < size;) {
    const std::size_t piece = std::min(size - done, bounce.size());
    from.read(bounce.data(), src + done, piece);
    to.write(dst + done, bounce.data(), piece);
    done += piece;
  }
}

// All are seq_cst: the store must be visible before the storer looks for a waiter, and the waiter's mark before
// it looks at the word (signal_page.hpp).
void store_word(Device& device, std::byte* word, std::uint64_t value) noexcept {
  word_at(device, word).store(value, std::memory_order_seq_cst);
}

void add_word(Device& device, std::byte* word, std::uint64_t value) noexcept {
  word_at(device, word).fetch_add(value, std::memory_order_seq_cst);
}

std::uint64_t fetch_add_word(Device& device, std::byte* word, std::uint64_t value) noexcept {
  return word_at(device, word).fetch_add(value, std::memory_order_seq_cst);
}

std::uint64_t swap_word(Device& device, std::byte* word, std::uint64_t value) noexcept {
  return word_at(device, word).exchange(value, std::memory_order_seq_cst);
}

std::uint64_t compare_swap_word(Device& device, std::byte* word, std::uint64_t expected,
                                std::uint64_t desired) noexcept {
  word_at(device, word).compare_exchange_strong(expected, desired, std::memory_order_seq_cst);
  return expected;  // what was found, success or not
}

std::uint64_t load_word(Device& device, const std::byte* word) noexcept {
  return word_at(device, word).load(std::memory_order_seq_cst);
}

}  // namespace hixl::memory
