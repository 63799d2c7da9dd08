// SPDX-License-Identifier: Apache-2.0
//
// Waiting: a caller's thread that waits for a callback of the loop.
#pragma once

#include <optional>
#include <utility>

#include "runtime/futex.hpp"
#include "runtime/hand_turn.hpp"
#include "runtime/loop.hpp"

namespace hixl::core {

/// Lives on the caller's stack: wait() returns only after give(). Unbounded by itself, since everything on the loop has
/// a deadline of its own; a loop that is turned by hand and that nobody turns is turned by the one who waits.
template <class Value>
class Waiting {
 public:
  /// Once, on the thread that runs the callback.
  void give(Value value) {
    value_ = std::move(value);
    // Release: the value is there for whoever sees the word. The waiter may be gone after the store, so the wake-up
    // goes to an address that nobody may wait at any more, which costs nothing.
    runtime::FutexWord& word = given_;
    word.store(1, std::memory_order_release);
    runtime::futex_wake_all(word);
  }

  /// Not on the loop's thread.
  [[nodiscard]] Value wait(const runtime::LoopThread& thread) {
    const runtime::WaitLimit none(Timeout(-1));
    const auto given = [this] { return given_.load(std::memory_order_acquire) != 0; };
    runtime::HandTurn* const hand = thread.hand().get();
    while (!given()) {
      if (hand != nullptr && hand->drives()) {
        static_cast<void>(hand->wait(given, none));
      } else if (hand != nullptr) {
        static_cast<void>(hand->sleep_on(given_, 0, none));
      } else {
        static_cast<void>(runtime::futex_wait(given_, 0, none));
      }
    }
    return std::move(*value_);
  }

 private:
  runtime::FutexWord given_{0};
  std::optional<Value> value_;
};

}  // namespace hixl::core
