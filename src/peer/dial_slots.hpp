// SPDX-License-Identifier: Apache-2.0
//
// DialSlots: how many connections a runtime makes at once. Who finds no slot waits in line, a peer once, however many
// links it wants; when its turn comes it takes one slot and stands at the end again for the next. A dial keeps its slot
// from the first packet until the peer's answer, and for its own time limit at most, so one that hangs keeps others
// waiting for no longer. Some slots are only for those whose lease is running: a session stands and no link of it does.
// Ranks that nobody has reached yet, and perhaps never will, cannot make them late.
//
// Loop-bound. Owner: Directory. Outlives its slots; a waiter that is destroyed leaves the line.
#pragma once

#include <cstdint>
#include <utility>

#include "base/list.hpp"
#include "peer/timing.hpp"
#include "runtime/loop.hpp"

namespace hixl::peer {

class DialSlots final : private runtime::Task {
 public:
  struct WaiterTag;
  /// Somebody who dials.
  class Waiter : public ListNode<WaiterTag> {
   public:
    /// A slot is free, and it is this one's turn to take() it, or not to.
    virtual void on_dial_turn() = 0;

   protected:
    ~Waiter() = default;
  };

  /// One connection under way. Move-only; an empty one is false.
  class Slot {
   public:
    Slot() = default;
    Slot(Slot&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    Slot& operator=(Slot&& other) noexcept {
      std::swap(of_, other.of_);
      return *this;
    }
    ~Slot() {
      if (of_ != nullptr) of_->give_back();
    }
    [[nodiscard]] explicit operator bool() const noexcept { return of_ != nullptr; }

   private:
    friend class DialSlots;
    explicit Slot(DialSlots* of) : of_(of) {}
    DialSlots* of_ = nullptr;
  };

  enum class Haste : std::uint8_t { none, lease_runs };

  explicit DialSlots(runtime::Loop& loop) : loop_(loop) {}
  /// A slot, or an empty one and a place in the line: on_dial_turn() follows.
  [[nodiscard]] Slot take(Waiter& waiter, Haste haste);
  [[nodiscard]] std::uint32_t taken() const noexcept { return taken_; }

 private:
  using Line = List<Waiter, WaiterTag>;
  [[nodiscard]] bool any_free(Haste haste) const noexcept {
    return taken_ + (haste == Haste::lease_runs ? 0 : k_dials_in_haste) < k_dials_max;
  }
  void serve(Line& line, Haste haste);
  void run() override;
  void give_back();

  runtime::Loop& loop_;
  std::uint32_t taken_ = 0;
  Line hasty_;
  Line waiting_;
  Waiter* turn_ = nullptr;  ///< whose turn it is now
};

/// A waiter as member of the one who dials.
template <class Owner>
class DialTurn final : public DialSlots::Waiter {
 public:
  DialTurn(Owner& owner, void (Owner::*on_turn)()) : owner_(owner), on_turn_(on_turn) {}
  void on_dial_turn() override { (owner_.*on_turn_)(); }

 private:
  Owner& owner_;
  void (Owner::*on_turn_)();
};

}  // namespace hixl::peer
