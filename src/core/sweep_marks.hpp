// SPDX-License-Identifier: Apache-2.0
//
// SweepMarks: of which requests the sweeper has told already. Loop-bound; ages are handed in.
#pragma once

#include <cstdint>
#include <vector>

#include <hixl/inspect.hpp>

#include "base/time.hpp"

namespace hixl::core {

class SweepMarks {
 public:
  /// `age`: from here on an open operation is told. All is allocated here.
  SweepMarks(std::uint32_t slots, Duration age) : age_(age), marks_(slots) {}

  /// One row of a sweep, each slot at most once a sweep: whether its hook is to be called now. An operation is told
  /// once for its age, and once for its failure, at the second sweep that finds it: who looks at results now and then
  /// had a whole period for it.
  [[nodiscard]] bool due(const OperationInfo& row) noexcept {
    Mark& mark = marks_[static_cast<std::uint32_t>(row.id)];
    const auto generation = static_cast<std::uint32_t>(row.id >> 32U);
    if (mark.generation != generation) mark = {.generation = generation};
    if (row.state != OperationState::ended) {
      if (mark.old_told || row.age < age_) return false;
      mark.old_told = true;
      return true;
    }
    if (row.error.code == ErrorCode::ok || row.told || mark.failure_told) return false;
    mark.failure_told = mark.failure_found;
    mark.failure_found = true;
    return mark.failure_told;
  }

 private:
  struct Mark {
    std::uint32_t generation = 0;
    bool old_told = false;
    bool failure_found = false;
    bool failure_told = false;
  };
  const Duration age_;
  std::vector<Mark> marks_;  // by slot
};

}  // namespace hixl::core
