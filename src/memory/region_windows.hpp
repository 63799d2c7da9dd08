// SPDX-License-Identifier: Apache-2.0
//
// RegionWindows: the windows that a region table made, and how many regions live in each. A window ends with its last
// region, or is parked when a peer may still write into it. Used under the table's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "memory/window.hpp"

namespace hixl::memory {

/// A window on its way out: its pages are zeroed if that was asked for, then given back, when this is destroyed. Big
/// windows take a while, so let it happen outside the lock.
class LeavingWindow {
 public:
  LeavingWindow() = default;
  LeavingWindow(std::uint32_t id, std::unique_ptr<Window> window, bool zero);
  LeavingWindow(LeavingWindow&&) noexcept = default;
  LeavingWindow& operator=(LeavingWindow&&) = delete;
  ~LeavingWindow();
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }

 private:
  std::uint32_t id_ = 0;
  std::unique_ptr<Window> window_;
  bool zero_ = false;
};

class RegionWindows {
 public:
  struct Home {
    std::uint32_t window_id = 0;  ///< 0: in no window
    std::uint64_t offset = 0;
    bool held = false;  ///< parked, or will be: takes no new region
  };

  RegionWindows() = default;
  ~RegionWindows();
  RegionWindows(const RegionWindows&) = delete;
  RegionWindows& operator=(const RegionWindows&) = delete;

  /// Ids rise from 1 and are never used again; the window has no region yet. 0 when the ids are used up.
  std::uint32_t adopt(std::unique_ptr<Window> window, bool zero_on_release);
  /// The window that holds this whole range.
  [[nodiscard]] Home home_of(const std::byte* data, std::size_t size) const;
  void enter(std::uint32_t window_id);
  /// One region less. With the last one the window leaves, unless it is held.
  [[nodiscard]] LeavingWindow leave(std::uint32_t window_id, bool hold);
  /// Null when it is gone, or parked without a region.
  [[nodiscard]] const Window* find(std::uint32_t window_id) const;

 private:
  struct Record {
    std::unique_ptr<Window> window;
    std::size_t regions = 0;
    bool zero_on_release = false;
    bool held = false;
  };
  std::map<std::uint32_t, Record> records_;
  std::map<std::uintptr_t, std::uint32_t> ids_by_base_;
  std::uint32_t last_id_ = 0;
};

}  // namespace hixl::memory
