// SPDX-License-Identifier: Apache-2.0
//
// Core's sweeper: looks at all requests once a period, a bounded number a turn, and tells the program's hook of those
// that are old, or have failed without anybody looking.
#include <algorithm>

#include "core/core_look.hpp"
#include "core/sweep.hpp"

namespace hixl::core {

namespace {

/// Failures without a slot that wait for the next sweep; more are in Counters::failed_unseen alone.
constexpr std::size_t k_dropped_max = 1024;

}  // namespace

void Core::Sweep::on_timer() {
  const RuntimeOptions& options = core.options_;
  const std::uint32_t count = std::min(k_slots_a_look, options.requests_max - next);
  std::vector<OperationInfo> told = std::exchange(dropped, {});
  for (OperationInfo& row : core.look_at_slots(next, count, core.loop_->now())) {
    if (marks.due(row)) told.push_back(std::move(row));
  }
  next = next + count < options.requests_max ? next + count : 0;
  core.loop_->start_after(*this, next == 0 ? Duration(options.sweep_period) : Duration{});
  // Last: the hook may post, cancel, stop the runtime.
  for (const OperationInfo& row : told) {
    core.tell([&] { options.sweep_hook.function(options.sweep_hook.context, row); });
  }
}

void Core::start_sweeping() {
  if (options_.sweep_period.count() == 0) return;
  sweep_ = std::make_unique<Sweep>(*this);
  loop_->start_after(*sweep_, options_.sweep_period);
}

void Core::note_unseen(OperationInfo&& operation, const Error& error) {
  if (!sweep_ || sweep_->dropped.size() >= k_dropped_max) return;
  operation.state = OperationState::ended;
  operation.error = error;
  operation.deadline_left = {};
  sweep_->dropped.push_back(std::move(operation));
}

}  // namespace hixl::core
