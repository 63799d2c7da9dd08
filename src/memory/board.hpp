// SPDX-License-Identifier: Apache-2.0
//
// Board: the current generation of each region of a rank, in a page that peers on the host map read-only. A direct
// store looks here, after it has announced itself, whether the region still stands. 0: no such region.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <hixl/result.hpp>
#include <hixl/types.hpp>

#include "memory/window.hpp"

namespace hixl::memory {

/// The owner's side. Thread-safe.
class Board {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Board>> create(std::uint32_t regions_max);
  void open(RegionKey key) noexcept;   ///< seq_cst; the key's id is below regions_max()
  void close(RegionKey key) noexcept;  ///< seq_cst
  [[nodiscard]] std::uint32_t generation(std::uint32_t id) const noexcept;
  [[nodiscard]] std::uint32_t regions_max() const noexcept { return regions_max_; }
  [[nodiscard]] Window& window() noexcept { return *window_; }

 private:
  Board() = default;
  std::unique_ptr<Window> window_;
  std::uint32_t regions_max_ = 0;
};

/// A peer's board, seen from here. Thread-safe.
class BoardView {
 public:
  [[nodiscard]] static Result<std::unique_ptr<BoardView>> map(int fd, std::uint32_t regions_max);
  [[nodiscard]] bool current(RegionKey key) const noexcept;  ///< seq_cst load

 private:
  BoardView() = default;
  std::unique_ptr<MappedWindow> window_;
  std::uint32_t regions_max_ = 0;
};

}  // namespace hixl::memory
