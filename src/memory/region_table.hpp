// SPDX-License-Identifier: Apache-2.0
//
// RegionTable: the registered memory of this rank. Ids are slots, generations their lives: an (id, generation) pair
// never comes back. Closing a region and emptying it are two steps, so that the links can be asked in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <hixl/memory.hpp>
#include <hixl/result.hpp>

#include "base/time.hpp"
#include "memory/board.hpp"
#include "memory/device.hpp"
#include "memory/interval_table.hpp"
#include "memory/region_windows.hpp"

namespace hixl::memory {

/// What a region is. Plain value; `window_id` 0 means not in a window.
struct RegionInfo {
  RegionKey key{};
  std::byte* data = nullptr;
  std::size_t size = 0;
  Rights rights = Rights::none;
  Token token{};
  std::uint32_t tag = 0;
  std::uint32_t window_id = 0;
  std::uint64_t window_offset = 0;
  Device* device = nullptr;
  bool owned = false;    ///< memory of the table: nobody else unmaps it
  bool writable = true;  ///< this process may write there itself
  // Of allocate() only.
  std::size_t page_bytes = 0;
  std::uint64_t spilled_bytes = 0;
  int numa_node = k_no_numa_node;
};

/// What is to be seen of a region, open or closed, from inside. The token stays where it is.
struct RegionLook {
  RegionInfo info{};
  std::uint64_t number = 0;  ///< rises with each region that is opened
  Instant opened{};
  std::uint64_t references = 0;
  std::uint64_t pins = 0;  ///< ranges that operations under way use
  bool closed = false;     ///< waits for pins, links and lanes
  bool held = false;       ///< hold(): waits for a peer that stands still
};

class RegionTable;

/// Keeps one local region from being emptied while an operation uses it as source or sink. Move-only; ends before its
/// table. An empty one (of a range of length 0) is false and stands for host memory.
class Pin {
 public:
  Pin() = default;
  Pin(Pin&& other) noexcept;
  Pin& operator=(Pin&& other) noexcept;
  ~Pin() { release(); }
  void release() noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return table_ != nullptr; }
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
  [[nodiscard]] Device& device() const noexcept;

 private:
  friend class RegionTable;
  RegionTable* table_ = nullptr;
  std::uint32_t id_ = 0;
};

/// Thread-safe unless said otherwise. pin, check, find and info take no lock and allocate nothing.
class RegionTable {
 public:
  /// Generations of each slot start at `first_generation` (a test of the last ones begins near them).
  [[nodiscard]] static Result<std::unique_ptr<RegionTable>> create(std::uint32_t regions_max, std::uint64_t seed,
                                                                   std::uint32_t first_generation = 1);
  ~RegionTable();

  struct Limits {
    std::uint64_t hbm_bytes = 0;       ///< capacity of the emulated device
    std::uint64_t held_bytes_max = 0;  ///< beyond: allocate() is LIMIT_REACHED
  };
  /// Before anything else; without it there is no device and no limit of held bytes.
  void limit(const Limits& limits);

  /// MEMORY_UNMAPPED when part of the range is not mapped or behind the end of its file, ACCESS_DENIED when it cannot
  /// be read, or not be written and `rights` let others write; OUT_OF_RANGE when it wraps, INVALID_ARGUMENT for size 0,
  /// LIMIT_REACHED, HELD (in memory that is kept back). The same range again (same rights, tag and device): the same
  /// region with one more reference. A range inside memory of this table becomes part of that, device included.
  /// The caller keeps other memory mapped, and writable where `rights` let others write.
  [[nodiscard]] Result<RegionInfo> add(void* data, std::size_t size, const RegisterOptions& options,
                                       Device& device = host_device(), Instant opened = {});
  /// A new window, or block of device memory, and a region that covers it. The errors of Window::create() and
  /// HbmHeap::allocate(), LIMIT_REACHED (regions, held bytes), INVALID_ARGUMENT (pages or nodes of device memory).
  [[nodiscard]] Result<RegionInfo> allocate(std::size_t size, const AllocateOptions& options, Instant opened = {});

  /// Finds the newest region that holds the whole range and pins it. NOT_REGISTERED, OUT_OF_RANGE (with the nearest
  /// region), STALE while it is being closed, ACCESS_DENIED when `need` has write and this process may not write there.
  /// length 0 is fine anywhere and gives an empty pin.
  [[nodiscard]] Result<Pin> pin(const void* data, std::uint64_t length, Rights need = Rights::read);
  /// Whether a byte of the range lies in device memory of this table. Cheap without any.
  [[nodiscard]] bool on_device(const void* data, std::uint64_t length) const;
  /// Checks an access that a peer asks for: STALE (other generation), ACCESS_DENIED (token or rights), OUT_OF_RANGE (no
  /// arithmetic wrap), else the place. Valid until the caller's turn ends; check() or stands() before each touch.
  struct Place {
    std::byte* data;
    Device* device;
    bool owned;  ///< RegionInfo::owned
  };
  [[nodiscard]] Result<Place> check(RegionKey key, const Token& token, std::uint64_t offset, std::uint64_t length,
                                    Rights need) const noexcept;
  /// Asking again, once check() has let an access in: true while its region is open, and then every word of the answer
  /// still holds, since nothing about an open life changes. Costs one load.
  [[nodiscard]] bool stands(RegionKey key) const noexcept;
  /// Same checks as pin(), for a program that asks about its own memory. length 0: any region that holds the address.
  [[nodiscard]] Result<RegionInfo> find(const void* data, std::uint64_t length) const;
  /// STALE unless this life is open.
  [[nodiscard]] Result<RegionInfo> info(RegionKey key) const;

  /// First step of deregistering: drops one reference; with the last one the region is closed to everybody (board
  /// included). True: closed now, go on with links and then retire(); false: references remain. STALE: unknown or
  /// closed already.
  [[nodiscard]] Result<bool> close(RegionKey key);
  /// True when nobody uses a closed region, nor ever will. False may also be a thread that tried and is about to see
  /// that it came too late: ask again.
  [[nodiscard]] bool unpinned(RegionKey key) const noexcept;
  /// A closed region has to wait for a peer that may still write there: its bytes count as held until it retires.
  void hold(RegionKey key);
  /// Last step: frees the slot for a new life, and the memory when this was its last region. The region must be closed
  /// and unpinned. With `keep_memory` the pages are kept until the table ends, and so is the slot: who still writes
  /// under this id must not look like a user of another region. Gives the memory that goes with it.
  LeavingWindow retire(RegionKey key, bool keep_memory);

  [[nodiscard]] Board& board() noexcept { return *board_; }
  /// Descriptor and size of a window, for a peer that asks; -1 when there is none.
  struct WindowFd {
    int fd = -1;
    std::size_t size = 0;
  };
  [[nodiscard]] WindowFd window_fd(std::uint32_t window_id) const;
  [[nodiscard]] std::vector<RegionInfo> list() const;
  struct Piece {
    std::vector<RegionLook> regions;
    std::uint32_t next = 0;  ///< id to go on from
    bool more = false;
  };
  /// Regions of `ids` ids from `from` on, in one stay at the lock: whoever looks at many takes them in pieces, so that
  /// nobody who registers waits for long.
  [[nodiscard]] Piece look(std::uint32_t from, std::uint32_t ids) const;
  /// Bytes of all regions that wait after hold(), or were retired with `keep_memory`.
  [[nodiscard]] std::uint64_t held_bytes() const;
  [[nodiscard]] HbmHeap::Usage hbm_usage() const;

 private:
  friend class Pin;
  struct Impl;
  explicit RegionTable(std::unique_ptr<Board> board, std::unique_ptr<Impl> impl);
  std::unique_ptr<Board> board_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hixl::memory
