// SPDX-License-Identifier: Apache-2.0
//
// RegionWindows: the memory that a region table made, windows and blocks of device memory, and how many regions live in
// each. One ends with its last region, or is parked when a peer may still write into it. Used under the table's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "memory/hbm.hpp"
#include "memory/window.hpp"

namespace hixl::memory {

/// Memory on its way out. Its pages go back piece by piece, since giving back gigabytes takes as long as a second and
/// whoever does it has other work; what is left goes when this is destroyed. Whoever still maps the pages keeps the
/// addresses, and finds zeros there.
class LeavingWindow {
 public:
  LeavingWindow() = default;
  LeavingWindow(std::uint32_t id, std::unique_ptr<Window> window, std::unique_ptr<HbmBlock> block);
  LeavingWindow(LeavingWindow&&) noexcept = default;
  LeavingWindow& operator=(LeavingWindow&&) noexcept = default;
  ~LeavingWindow();
  /// Id that peers know it by; 0: they never could map it, or there is nothing.
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
  /// Gives back at most `bytes_max` in whole ordinary pages; how many.
  std::size_t give_back(std::size_t bytes_max) noexcept;
  /// Everything has gone back.
  [[nodiscard]] bool empty() const noexcept { return window_ == nullptr && block_ == nullptr; }

 private:
  std::uint32_t id_ = 0;
  std::size_t given_back_ = 0;
  std::unique_ptr<Window> window_;
  std::unique_ptr<HbmBlock> block_;
};

class RegionWindows {
 public:
  struct Home {
    std::uint32_t id = 0;  ///< 0: in none
    std::uint64_t offset = 0;
    bool held = false;           ///< parked, or will be: takes no new region
    Device* device = nullptr;    ///< of a block; null for a window
  };

  RegionWindows() = default;
  ~RegionWindows();
  RegionWindows(const RegionWindows&) = delete;
  RegionWindows& operator=(const RegionWindows&) = delete;

  /// Ids rise from 1 and are never used again; the memory has no region yet. 0 when the ids are used up.
  std::uint32_t adopt(std::unique_ptr<Window> window, bool zero_on_release);
  std::uint32_t adopt(std::unique_ptr<HbmBlock> block);
  /// What holds this whole range.
  [[nodiscard]] Home home_of(const std::byte* data, std::size_t size) const;
  /// Whether a byte of the range lies in a block.
  [[nodiscard]] bool touches_block(const std::byte* data, std::size_t size) const;
  void enter(std::uint32_t id);
  /// One region less. With the last one the memory leaves, unless it is held.
  [[nodiscard]] LeavingWindow leave(std::uint32_t id, bool hold);
  /// Null when it is gone, parked without a region, or no window.
  [[nodiscard]] const Window* find(std::uint32_t id) const;

 private:
  struct Record {
    [[nodiscard]] std::byte* data() const noexcept { return window != nullptr ? window->data() : block->data(); }
    [[nodiscard]] std::size_t size() const noexcept { return window != nullptr ? window->size() : block->size(); }
    std::unique_ptr<Window> window;  // or block
    std::unique_ptr<HbmBlock> block;
    std::size_t regions = 0;
    bool zero_on_release = false;
    bool held = false;
  };
  std::uint32_t adopt(Record record);
  std::map<std::uint32_t, Record> records_;
  std::map<std::uintptr_t, std::uint32_t> ids_by_base_;
  std::uint32_t last_id_ = 0;
};

}  // namespace hixl::memory
