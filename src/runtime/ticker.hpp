// SPDX-License-Identifier: Apache-2.0
//
// Ticker: a timer that calls a member function of its owner, for owners that have several. Embedded in the owner.
#pragma once

#include "runtime/timer.hpp"

namespace hixl::runtime {

template <class Owner>
class Ticker final : public Timer {
 public:
  using Function = void (Owner::*)();
  Ticker(Owner& owner, Function function) : owner_(owner), function_(function) {}
  void on_timer() override { (owner_.*function_)(); }

 private:
  Owner& owner_;
  Function function_;
};

}  // namespace hixl::runtime
