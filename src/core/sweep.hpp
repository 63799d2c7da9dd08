// SPDX-License-Identifier: Apache-2.0
//
// Sweep: the sweeper of a core, a timer on its loop.
#pragma once

#include <vector>

#include "core/core.hpp"
#include "core/sweep_marks.hpp"

namespace hixl::core {

struct Core::Sweep final : runtime::Timer {
  explicit Sweep(Core& owner) : core(owner), marks(owner.options_.requests_max, owner.options_.sweep_age) {}
  void on_timer() override;

  Core& core;
  SweepMarks marks;
  std::uint32_t next = 0;              // slot to go on from
  std::vector<OperationInfo> dropped;  // failed when nobody held a Request any more
};

}  // namespace hixl::core
