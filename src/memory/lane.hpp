// SPDX-License-Identifier: Apache-2.0
//
// Lane: how a process stores straight into a window of another, so that the other can still revoke a region.
//
// The target makes one page for each peer. The initiator announces the region in a slot of that page, then reads gate
// and board, copies, and clears the slot. The target closes gate or board entry, then waits until no slot names the
// region. Announcement and closing are seq_cst (store, then load, on both sides), so one of them sees the other. A
// slot that stays set belongs to a copy that is under way, in a process that runs, is stopped, or has died.
//
// The page is written by the peer too: what is read from it is compared, never used as an index or a pointer.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <hixl/result.hpp>
#include <hixl/types.hpp>

#include "base/ids.hpp"
#include "memory/board.hpp"
#include "memory/window.hpp"

namespace hixl::memory {

/// As many copies into one peer can be under way at once; with gate and challenge the page has 64 cache lines.
inline constexpr std::size_t k_lane_slots = 62;

struct alignas(64) LaneSlot {
  std::atomic<std::uint64_t> announced{0};  ///< 0: free; else generation << 32 | (id + 1)
};

struct LanePage {
  alignas(64) std::atomic<std::uint64_t> gate{0};  ///< the link generation whose accesses are let in; 0: none
  alignas(64) std::atomic<std::uint64_t> challenge{0};
  std::array<LaneSlot, k_lane_slots> slots;
};
static_assert(sizeof(LanePage) == 4096, "one page");

/// The target's side of one lane. Thread-safe.
class LaneDoor {
 public:
  [[nodiscard]] static Result<std::unique_ptr<LaneDoor>> create(std::uint64_t challenge);
  void open(LinkGen generation) noexcept;
  void close() noexcept;
  /// True when no slot names this region (any generation of this id). Call after the board entry is closed.
  [[nodiscard]] bool idle(RegionKey key) const noexcept;
  /// True when no slot is taken at all. Call after close().
  [[nodiscard]] bool idle() const noexcept;
  [[nodiscard]] Window& window() noexcept { return *window_; }

 private:
  LaneDoor() = default;
  [[nodiscard]] LanePage& page() const noexcept { return *reinterpret_cast<LanePage*>(window_->data()); }
  std::unique_ptr<Window> window_;
};

/// The initiator's side. Thread-safe.
class Lane {
 public:
  enum class Outcome : std::uint8_t {
    done,
    closed,   ///< the link generation is fenced
    stale,    ///< the region no longer stands
    crowded,  ///< every slot is taken
  };
  /// `door_fd` and `board_fd` as the target offered them.
  [[nodiscard]] static Result<std::unique_ptr<Lane>> open(int door_fd, int board_fd, std::uint32_t regions_max,
                                                          LinkGen generation);
  [[nodiscard]] std::uint64_t challenge() const noexcept;

  /// Announces, checks, runs `access()` (a bounded copy), clears. Counts the bytes.
  template <class Access>
  [[nodiscard]] Outcome run(RegionKey key, std::size_t bytes_out, std::size_t bytes_in, Access&& access) noexcept {
    return enter(key, [&](std::size_t slot) {
      access();
      count(slot, bytes_out, bytes_in);
    });
  }
  /// The same, not counted: for links, which count what they post themselves.
  template <class Access>
  [[nodiscard]] Outcome run(RegionKey key, Access&& access) noexcept {
    return enter(key, [&](std::size_t) { access(); });
  }
  /// The same without a region: only the gate is asked. For a proof at set-up, which touches no region.
  template <class Access>
  [[nodiscard]] Outcome run_unbound(Access&& access) noexcept {
    const std::size_t slot = announce(k_unbound);
    if (slot == k_lane_slots) return Outcome::crowded;
    const Outcome outcome = gate_stands() ? Outcome::done : Outcome::closed;
    if (outcome == Outcome::done) access();
    clear(slot);
    return outcome;
  }
  /// Sums of the counted runs.
  struct Totals {
    std::uint64_t operations = 0, bytes_out = 0, bytes_in = 0;
  };
  [[nodiscard]] Totals totals() const noexcept;
  /// True when no slot is taken. Call once nobody can start anew; then the peer's memory may be unmapped. Does not
  /// trust the page: a peer that clears it cannot have memory unmapped under a copy.
  [[nodiscard]] bool idle() const noexcept;

 private:
  /// This process' half of a slot.
  struct alignas(64) Holder {
    std::atomic<std::uint32_t> taken{0};
    std::atomic<std::uint64_t> operations{0};  // these are written by the holder only
    std::atomic<std::uint64_t> bytes_out{0};
    std::atomic<std::uint64_t> bytes_in{0};
  };
  /// Announced by a run without a region: its mark is that of no id (see announcement()).
  static constexpr RegionKey k_unbound{0xffffffffU, 1};
  Lane() = default;
  [[nodiscard]] bool gate_stands() const noexcept;
  [[nodiscard]] LanePage& page() const noexcept { return *reinterpret_cast<LanePage*>(page_window_->data()); }
  template <class Access>
  [[nodiscard]] Outcome enter(RegionKey key, Access&& access) noexcept {
    const std::size_t slot = announce(key);
    if (slot == k_lane_slots) return Outcome::crowded;
    const Outcome outcome = check(key);
    if (outcome == Outcome::done) access(slot);
    clear(slot);
    return outcome;
  }
  /// Index of the slot, k_lane_slots when all are taken.
  [[nodiscard]] std::size_t announce(RegionKey key) noexcept;
  [[nodiscard]] Outcome check(RegionKey key) const noexcept;
  void count(std::size_t slot, std::size_t bytes_out, std::size_t bytes_in) noexcept;
  void clear(std::size_t slot) noexcept;
  std::unique_ptr<MappedWindow> page_window_;
  std::unique_ptr<BoardView> board_;
  std::array<Holder, k_lane_slots> holders_;
  LinkGen generation_ = 0;
};

}  // namespace hixl::memory
