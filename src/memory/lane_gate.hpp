// SPDX-License-Identifier: Apache-2.0
//
// LaneGate: lets callers' threads use a peer's lane, and takes it away again. The loop opens and closes; a caller
// enters, works, and leaves. After close() and idle() nobody is inside, so lane and mappings may go. While a fence or
// flush to the peer is open nobody is let in either, since a copy in the lane would overtake what it orders. One a
// peer, never moves.
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
    if (lets_in(word_.fetch_add(k_user, std::memory_order_seq_cst))) return true;
    leave();
    return false;
  }
  void leave() noexcept { word_.fetch_sub(k_user, std::memory_order_seq_cst); }
  /// Any thread: a guess, for choosing a way; enter() decides.
  [[nodiscard]] bool is_open() const noexcept { return lets_in(word_.load(std::memory_order_relaxed)); }
  /// Any thread: how many callers are inside at this moment.
  [[nodiscard]] std::uint32_t users() const noexcept {
    return static_cast<std::uint32_t>((word_.load(std::memory_order_relaxed) & (k_order - k_user)) / k_user);
  }
  /// Any thread, before it sends a fence or flush on its way: from now on nobody enters. Pairs with end_order(). False
  /// when `limit` of them are open already.
  [[nodiscard]] bool begin_order(std::uint64_t limit) noexcept {
    if (word_.fetch_add(k_order, std::memory_order_seq_cst) / k_order < limit) return true;
    end_order();
    return false;
  }
  /// Any thread.
  void end_order() noexcept { word_.fetch_sub(k_order, std::memory_order_seq_cst); }
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
  [[nodiscard]] bool idle() const noexcept { return (word_.load(std::memory_order_seq_cst) & (k_order - k_user)) == 0; }

 private:
  // One word: whether it is open, who is inside, and how many fences and flushes are open.
  static constexpr std::uint64_t k_open = 1;
  static constexpr std::uint64_t k_user = 2;
  static constexpr std::uint64_t k_order = std::uint64_t{1} << 32U;  // more threads than 2^31 there are not
  [[nodiscard]] static constexpr bool lets_in(std::uint64_t word) noexcept {
    return (word & k_open) != 0 && word < k_order;
  }
  alignas(64) std::atomic<std::uint64_t> word_{0};
  Lane* lane_ = nullptr;  // published by the read-modify-write of open()
  SignalBell* bell_ = nullptr;
};

}  // namespace hixl::memory
