// SPDX-License-Identifier: Apache-2.0
#include "memory/hbm.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/assert.hpp"
#include "memory/memory_limit.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older C libraries do not name it
#endif

namespace hixl::memory {
namespace {

/// As windows do: page tables and their kin are charged too.
constexpr std::size_t k_hbm_overhead_divisor = 256;

std::byte* map(std::size_t size, int protection) noexcept {
  void* data = mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, size, MADV_DONTFORK);
  madvise(data, size, MADV_DONTDUMP);
  return static_cast<std::byte*>(data);
}

/// Pages that are really there. 0 or an error number.
int populate(std::byte* pages, std::size_t size) noexcept {
  if (madvise(pages, size, MADV_POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL) return errno;
  for (std::size_t at = 0; at < size; at += HbmBlock::page_bytes()) reinterpret_cast<volatile char*>(pages)[at] = 0;
  return 0;
}

}  // namespace

Result<std::unique_ptr<HbmBlock>> HbmHeap::allocate(std::size_t size, bool spill) {
  ErrorDetail detail{.stage = Stage::memory, .length = size};
  if (capacity_ == 0) return fail(ErrorCode::unsupported, detail);
  if (size == 0) return fail(ErrorCode::invalid_argument, detail);
  detail.limit = capacity_;
  if (size > std::numeric_limits<std::size_t>::max() / 2) return fail(ErrorCode::no_memory, detail);
  const std::size_t bytes = (size + HbmBlock::page_bytes() - 1) / HbmBlock::page_bytes() * HbmBlock::page_bytes();
  detail.length = bytes;
  if (const std::uint64_t available = available_bytes();
      bytes > available || bytes / k_hbm_overhead_divisor > available - bytes) {
    detail.limit = available;
    return fail(ErrorCode::no_memory, detail);
  }
  std::unique_ptr<HbmBlock> block;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t resident = std::min<std::uint64_t>(bytes, capacity_ - used_);
    if (resident < bytes && !spill) {
      detail.limit = capacity_ - used_;
      return fail(ErrorCode::no_memory, detail);
    }
    block.reset(new HbmBlock(*this, resident, bytes - resident));
    used_ += resident;
    spilled_ += bytes - resident;
  }
  if (const Result<void> made = block->make(bytes); !made) return fail(made.error());
  return block;
}

HbmHeap::Usage HbmHeap::usage() const {
  const std::lock_guard lock(mutex_);
  return {.capacity = capacity_, .used = used_, .spilled = spilled_};
}

void HbmHeap::give_back(std::uint64_t resident, std::uint64_t spilled) {
  const std::lock_guard lock(mutex_);
  used_ -= resident;
  spilled_ -= spilled;
}

std::size_t HbmBlock::page_bytes() noexcept { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

Result<void> HbmBlock::make(std::size_t size) {
  size_ = size;
  address_ = map(size, PROT_NONE);
  if (address_ != nullptr) pages_ = map(size, PROT_READ | PROT_WRITE);
  const int error = pages_ == nullptr ? errno : populate(pages_, size);
  if (error == 0) return {};
  return fail(ErrorCode::no_memory, {.stage = Stage::memory,
                                     .os_error = error,
                                     .length = size,
                                     .limit = error == ENOMEM ? address_space_limit() : 0});
}

HbmBlock::~HbmBlock() {
  if (pages_ != nullptr) munmap(pages_, size_);
  if (address_ != nullptr) munmap(address_, size_);
  heap_.give_back(resident_, spilled_);
}

const DeviceCaps& HbmBlock::caps() const noexcept {
  static constexpr DeviceCaps k_caps{.cpu_addressable = false,
                                     .atomic_capable = false,
                                     .mappable = false,
                                     .name = "hbm (emulated)",
                                     .kind = MemoryKind::hbm};
  return k_caps;
}

std::byte* HbmBlock::page_of(const std::byte* address, std::size_t size) const noexcept {
  HIXL_ASSERT(address >= address_ && address <= address_ + size_);
  const auto offset = static_cast<std::size_t>(address - address_);
  HIXL_ASSERT(size <= size_ - offset);
  return pages_ + offset;
}

void HbmBlock::write(std::byte* dst, const std::byte* src, std::size_t size) noexcept {
  if (size == 0) return;
  std::memcpy(page_of(dst, size), src, size);
  heap_.copied_bytes_.fetch_add(size, std::memory_order_relaxed);
}

void HbmBlock::read(std::byte* dst, const std::byte* src, std::size_t size) noexcept {
  if (size == 0) return;
  std::memcpy(dst, page_of(src, size), size);
  heap_.copied_bytes_.fetch_add(size, std::memory_order_relaxed);
}

void HbmBlock::give_back(std::size_t offset, std::size_t bytes) noexcept {
  if (madvise(pages_ + offset, bytes, MADV_DONTNEED) != 0) std::memset(pages_ + offset, 0, bytes);
}

}  // namespace hixl::memory
