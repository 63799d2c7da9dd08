// SPDX-License-Identifier: Apache-2.0
//
// LaneGate: lets callers' threads use a peer's lane, and takes it away again. The loop opens and closes; a caller
// enters, works, and leaves. After close() and idle() nobody is inside, so lane and mappings may go. One a peer, never
// moves.
#pragma once

#include <atomic>
#include <cstdint>

#include "memory/lane.hpp"
#include "memory/signal_page.hpp"

namespace hixl::memory {

class LaneGate {
 public:
  /// Any thread. True: inside until leave(), lane() and bell() are valid. The counter's read-modify-write orders this
  /// before the look at `open`, and close()'s before idle()'s look at the counter.
  [[nodiscard]] bool enter() noexcept {
    if ((word_.fetch_add(k_user, std::memory_order_seq_cst) & k_open) != 0) return true;
    leave();
    return false;
  }
  void leave() noexcept { word_.fetch_sub(k_user, std::memory_order_seq_cst); }
  /// Any thread: a guess, for choosing a way; enter() decides.
  [[nodiscard]] bool is_open() const noexcept { return (word_.load(std::memory_order_relaxed) & k_open) != 0; }
  [[nodiscard]] Lane& lane() const noexcept { return *lane_; }
  [[nodiscard]] SignalBell& bell() const noexcept { return *bell_; }

  /// Loop. The gate must be closed and idle.
  void open(Lane& lane, SignalBell& bell) noexcept {
    lane_ = &lane;
    bell_ = &bell;
    word_.fetch_or(k_open, std::memory_order_seq_cst);
  }
  /// Loop.
  void close() noexcept { word_.fetch_and(~k_open, std::memory_order_seq_cst); }
  [[nodiscard]] bool idle() const noexcept { return word_.load(std::memory_order_seq_cst) < k_user; }

 private:
  static constexpr std::uint64_t k_open = 1;
  static constexpr std::uint64_t k_user = 2;
  alignas(64) std::atomic<std::uint64_t> word_{0};
  Lane* lane_ = nullptr;  // published by the read-modify-write of open()
  SignalBell* bell_ = nullptr;
};

}  // namespace hixl::memory
