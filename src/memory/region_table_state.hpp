// SPDX-License-Identifier: Apache-2.0
//
// What stands behind a RegionTable. Private to region_table*.cpp.
//
// A slot's `life` is its generation and state in one word. It opens after the slot's fields are written and closes
// before they may change, so a reader that sees the same open life before and after has read one region.
//
// Pinning and closing announce first and look second, both seq_cst: a pin counts itself and then reads the life;
// closing stores the life and then reads the count. One of the two sees the other.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/random.hpp"
#include "memory/hbm.hpp"
#include "memory/region_table.hpp"
#include "memory/region_windows.hpp"
#include "memory/sequence.hpp"
#include "memory/sparse_array.hpp"

namespace hixl::memory {

using Word = Cell<std::uint64_t>;

enum class State : std::uint32_t { free = 0, open = 1, closed = 2 };

[[nodiscard]] constexpr std::uint64_t life_of(std::uint32_t generation, State state) noexcept {
  return std::uint64_t{generation} << 32U | static_cast<std::uint64_t>(state);
}
[[nodiscard]] constexpr State state_of(std::uint64_t life) noexcept { return static_cast<State>(life & 0xffffffffU); }
[[nodiscard]] constexpr std::uint32_t generation_of(std::uint64_t life) noexcept {
  return static_cast<std::uint32_t>(life >> 32U);
}

[[nodiscard]] inline std::uint64_t number(const void* data) noexcept { return reinterpret_cast<std::uint64_t>(data); }

/// No arithmetic here can wrap.
[[nodiscard]] inline bool holds(const std::byte* data, std::uint64_t size, std::uint64_t address,
                                std::uint64_t length) noexcept {
  return address >= number(data) && address - number(data) <= size && length <= size - (address - number(data));
}

/// The first cache line is read by all, the second written by those who pin.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> life;
  Cell<std::byte*> data;
  Word size;
  Word token_high;
  Word token_low;
  Cell<Device*> device;
  Cell<Rights> rights;
  Cell<std::uint32_t> tag;
  Cell<bool> writable;
  Cell<bool> owned;  // by RegionWindows: home_id is not 0
  // Counts over all lives: a thread that comes too late may count itself in the next one for a moment.
  alignas(64) std::atomic<std::uint64_t> pins;
  Word window_offset;
  Cell<std::uint32_t> window_id;
  Cell<std::uint32_t> home_id;  // of RegionWindows; the window_id too, when peers can map it
  std::uint64_t references;     // under the lock
  bool held;                    // under the lock
};

/// Of a slot's present life, for those who look inside; under the lock.
struct Story {
  std::uint64_t number;
  std::int64_t opened;  // as an Instant counts
  std::uint64_t page_bytes;
  std::uint64_t spilled_bytes;
  int numa_node;
};

struct RegionTable::Impl {
  Impl(std::uint32_t max, std::uint64_t seed, std::uint32_t first)
      : regions_max(max),
        first_generation(first),
        slots(max),
        stories(max),
        intervals(max),
        closing(max),
        random(seed) {}

  // Any thread.
  [[nodiscard]] std::optional<RegionInfo> snapshot(std::uint32_t id) const noexcept;
  [[nodiscard]] tl::unexpected<Error> refuse(std::uint64_t address, std::uint64_t length) const noexcept;
  [[nodiscard]] tl::unexpected<Error> deny(RegionKey key, const Token& token, std::uint64_t offset,
                                           std::uint64_t length, Rights need) const noexcept;
  // Under the lock.
  [[nodiscard]] std::optional<std::uint32_t> same_again(const RegionInfo& wanted) const noexcept;
  [[nodiscard]] std::optional<std::uint32_t> take_slot();
  [[nodiscard]] RegionInfo open(std::uint32_t id, RegionInfo info, std::uint32_t home_id, Board& board, Instant opened);
  // Outside the lock; fill in where the memory is and give its id.
  [[nodiscard]] Result<std::uint32_t> make_window(RegionInfo& info, const AllocateOptions& options);
  [[nodiscard]] Result<std::uint32_t> make_block(RegionInfo& info, const AllocateOptions& options);
  [[nodiscard]] static Result<std::uint32_t> numbered(std::uint32_t home_id, std::size_t size);

  std::atomic<std::uint64_t> blocks_begin{std::numeric_limits<std::uint64_t>::max()};  // all blocks ever lie between
  std::atomic<std::uint64_t> blocks_end{0};
  const std::uint32_t regions_max;
  const std::uint32_t first_generation;
  SparseArray<Slot> slots;
  SparseArray<Story> stories;           // under the lock
  IntervalTable intervals;              // open regions
  IntervalTable closing;                // closed ones until they retire, to tell STALE from NOT_REGISTERED
  mutable std::mutex mutex;             // guards all below
  std::vector<std::uint32_t> free_ids;  // used before
  std::uint32_t fresh_id = 0;           // from here on never used
  std::multimap<std::uint64_t, std::uint32_t> open_ids_by_base;
  std::unique_ptr<HbmHeap> hbm = std::make_unique<HbmHeap>(0);  // before its blocks
  RegionWindows windows;
  Random random;
  std::uint64_t age = 0;
  std::uint64_t held_bytes = 0;
  std::uint64_t held_bytes_max = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace hixl::memory
