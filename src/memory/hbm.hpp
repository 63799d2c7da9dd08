// SPDX-License-Identifier: Apache-2.0
//
// Emulated device memory. A block has an address like any memory, but nothing is mapped there that the CPU could use:
// its bytes lie in pages that only its copy engine knows. Who dereferences a block's address dies at once, which proves
// that nobody does.
//
// The engine copies in the thread that asks, in pieces, as a driver does that waits for its device; a queue and a
// thread of its own would only add two wake-ups to each of these short copies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <hixl/result.hpp>

#include "memory/device.hpp"

namespace hixl::memory {

class HbmBlock;

/// The device's memory: a capacity, and what is taken of it. Thread-safe. Outlives its blocks.
class HbmHeap {
 public:
  explicit HbmHeap(std::uint64_t capacity_bytes) : capacity_(capacity_bytes) {}

  /// A zeroed block, rounded up to pages. UNSUPPORTED without any capacity; NO_MEMORY (length: needed, limit: free)
  /// when it does not fit, unless `spill`: then what does not fit takes the host's memory. NO_MEMORY also when the host
  /// has not enough behind the emulation.
  [[nodiscard]] Result<std::unique_ptr<HbmBlock>> allocate(std::size_t size, bool spill);

  struct Usage {
    std::uint64_t capacity = 0;
    std::uint64_t used = 0;
    std::uint64_t spilled = 0;
  };
  [[nodiscard]] Usage usage() const;
  /// Bytes that the engines have copied, in both directions. Relaxed: a count, nothing hangs on it.
  [[nodiscard]] std::uint64_t copied_bytes() const noexcept { return copied_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class HbmBlock;
  void give_back(std::uint64_t resident, std::uint64_t spilled);

  const std::uint64_t capacity_;
  std::atomic<std::uint64_t> copied_bytes_{0};
  mutable std::mutex mutex_;  // guards all below
  std::uint64_t used_ = 0;
  std::uint64_t spilled_ = 0;
};

/// One allocation, a device of its own since its copy engine is set to its pages. Copies are thread-safe; addresses
/// outside the block are our own bug.
class HbmBlock final : public Device {
 public:
  ~HbmBlock() override;
  [[nodiscard]] const DeviceCaps& caps() const noexcept override;
  void write(std::byte* dst, const std::byte* src, std::size_t size) noexcept override;
  void read(std::byte* dst, const std::byte* src, std::size_t size) noexcept override;

  /// The address that the program and its peers use.
  [[nodiscard]] std::byte* data() const noexcept { return address_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] static std::size_t page_bytes() noexcept;
  [[nodiscard]] std::uint64_t spilled_bytes() const noexcept { return spilled_; }
  /// Pages of [offset, offset + bytes) go back to the system, in whole pages; they read as zeros then.
  void give_back(std::size_t offset, std::size_t bytes) noexcept;

 private:
  friend class HbmHeap;
  HbmBlock(HbmHeap& heap, std::uint64_t resident, std::uint64_t spilled)
      : heap_(heap), resident_(resident), spilled_(spilled) {}
  [[nodiscard]] Result<void> make(std::size_t size);
  [[nodiscard]] std::byte* page_of(const std::byte* address, std::size_t size) const noexcept;

  HbmHeap& heap_;
  const std::uint64_t resident_;
  const std::uint64_t spilled_;
  std::size_t size_ = 0;
  std::byte* address_ = nullptr;
  std::byte* pages_ = nullptr;
};

}  // namespace hixl::memory
