// SPDX-License-Identifier: Apache-2.0
//
// Both sides of the lane. Pairing: announce() stores the slot, then check() loads gate and board; the target stores
// gate or board, then idle() loads the slots; all are seq_cst. clear() releases the copied bytes to idle().
#include "memory/lane.hpp"

#include <new>

namespace hixl::memory {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "slots are shared between processes");

constexpr std::uint64_t k_id_mask = 0xffffffffU;

/// Never 0. In 64 bits, so that the largest id does not wrap to "free"; its low half is then that of no region.
constexpr std::uint64_t announcement(RegionKey key) noexcept {
  return std::uint64_t{key.generation} << 32U | (std::uint64_t{key.id} + 1);
}

/// Where a thread looks for a slot first: threads start at different ones, so that their slots' lines stay theirs.
std::size_t first_slot() noexcept {
  thread_local const char anchor = 0;
  constexpr std::uint64_t k_golden = 0x9e3779b97f4a7c15U;  // spreads addresses that differ in few bits
  thread_local const std::size_t slot =
      static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(&anchor) * k_golden) >> 32U) % k_lane_slots;
  return slot;
}

/// Counters of a slot have one writer at a time, so adding needs no locked instruction.
void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace

Result<std::unique_ptr<LaneDoor>> LaneDoor::create(std::uint64_t challenge) {
  auto window = Window::create(sizeof(LanePage), "lane");
  if (!window) return fail(window.error());
  std::unique_ptr<LaneDoor> door(new LaneDoor);
  door->window_ = std::move(*window);
  LanePage* page = new (door->window_->data()) LanePage{};
  page->challenge.store(challenge, std::memory_order_seq_cst);
  return door;
}

void LaneDoor::open(LinkGen generation) noexcept { page().gate.store(generation, std::memory_order_seq_cst); }
void LaneDoor::close() noexcept { page().gate.store(0, std::memory_order_seq_cst); }

bool LaneDoor::idle(RegionKey key) const noexcept {
  for (const LaneSlot& slot : page().slots) {
    if ((slot.announced.load(std::memory_order_seq_cst) & k_id_mask) == std::uint64_t{key.id} + 1) return false;
  }
  return true;
}

bool LaneDoor::idle() const noexcept {
  for (const LaneSlot& slot : page().slots) {
    if (slot.announced.load(std::memory_order_seq_cst) != 0) return false;
  }
  return true;
}

Result<std::unique_ptr<Lane>> Lane::open(int door_fd, int board_fd, std::uint32_t regions_max, LinkGen generation) {
  auto page_window = MappedWindow::map(door_fd, sizeof(LanePage), true);
  if (!page_window) return fail(page_window.error());
  auto board = BoardView::map(board_fd, regions_max);
  if (!board) return fail(board.error());
  std::unique_ptr<Lane> lane(new Lane);
  lane->page_window_ = std::move(*page_window);
  lane->board_ = std::move(*board);
  lane->generation_ = generation;
  return lane;
}

std::uint64_t Lane::challenge() const noexcept { return page().challenge.load(std::memory_order_seq_cst); }

std::size_t Lane::announce(RegionKey key) noexcept {
  std::size_t slot = first_slot();
  for (std::size_t tried = 0; tried < k_lane_slots; ++tried, slot = slot + 1 == k_lane_slots ? 0 : slot + 1) {
    std::uint32_t free = 0;
    if (!holders_[slot].taken.compare_exchange_strong(free, 1, std::memory_order_acquire)) continue;
    page().slots[slot].announced.store(announcement(key), std::memory_order_seq_cst);
    return slot;
  }
  return k_lane_slots;
}

bool Lane::gate_stands() const noexcept { return page().gate.load(std::memory_order_seq_cst) == generation_; }

Lane::Outcome Lane::check(RegionKey key) const noexcept {
  if (!gate_stands()) return Outcome::closed;
  return board_->current(key) ? Outcome::done : Outcome::stale;
}

void Lane::count(std::size_t slot, std::size_t bytes_out, std::size_t bytes_in) noexcept {
  add(holders_[slot].operations, 1);
  add(holders_[slot].bytes_out, bytes_out);
  add(holders_[slot].bytes_in, bytes_in);
}

void Lane::clear(std::size_t slot) noexcept {
  page().slots[slot].announced.store(0, std::memory_order_release);
  holders_[slot].taken.store(0, std::memory_order_release);
}

Lane::Totals Lane::totals() const noexcept {
  Totals totals;
  for (const Holder& holder : holders_) {
    totals.operations += holder.operations.load(std::memory_order_relaxed);
    totals.bytes_out += holder.bytes_out.load(std::memory_order_relaxed);
    totals.bytes_in += holder.bytes_in.load(std::memory_order_relaxed);
  }
  return totals;
}

bool Lane::idle() const noexcept {
  for (const Holder& holder : holders_) {
    if (holder.taken.load(std::memory_order_acquire) != 0) return false;
  }
  return true;
}

}  // namespace hixl::memory
