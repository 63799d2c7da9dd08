// SPDX-License-Identifier: Apache-2.0
#include "memory/board.hpp"

#include <new>

#include "base/assert.hpp"

namespace hixl::memory {
namespace {

using GenerationWord = std::atomic<std::uint32_t>;
static_assert(GenerationWord::is_always_lock_free, "entries are shared between processes");

GenerationWord& entry(std::byte* data, std::uint32_t id) noexcept {
  return reinterpret_cast<GenerationWord*>(data)[id];
}

}  // namespace

Result<std::unique_ptr<Board>> Board::create(std::uint32_t regions_max) {
  auto window = Window::create(std::size_t{regions_max} * sizeof(GenerationWord), "board");
  if (!window) return fail(window.error());
  std::unique_ptr<Board> board(new Board);
  board->window_ = std::move(*window);
  board->regions_max_ = regions_max;
  for (std::uint32_t id = 0; id < regions_max; ++id) new (&entry(board->window_->data(), id)) GenerationWord(0);
  return board;
}

void Board::open(RegionKey key) noexcept {
  HIXL_ASSERT(key.valid() && key.id < regions_max_);
  entry(window_->data(), key.id).store(key.generation, std::memory_order_seq_cst);
}

void Board::close(RegionKey key) noexcept {
  HIXL_ASSERT(key.id < regions_max_);
  entry(window_->data(), key.id).store(0, std::memory_order_seq_cst);
}

std::uint32_t Board::generation(std::uint32_t id) const noexcept {
  return id < regions_max_ ? entry(window_->data(), id).load(std::memory_order_seq_cst) : 0;
}

Result<std::unique_ptr<BoardView>> BoardView::map(int fd, std::uint32_t regions_max) {
  auto window = MappedWindow::map(fd, std::size_t{regions_max} * sizeof(GenerationWord), false);
  if (!window) return fail(window.error());
  std::unique_ptr<BoardView> view(new BoardView);
  view->window_ = std::move(*window);
  view->regions_max_ = regions_max;
  return view;
}

bool BoardView::current(RegionKey key) const noexcept {
  return key.valid() && key.id < regions_max_ &&
         entry(window_->data(), key.id).load(std::memory_order_seq_cst) == key.generation;
}

}  // namespace hixl::memory
