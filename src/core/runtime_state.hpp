// SPDX-License-Identifier: Apache-2.0
//
// What is behind a hixl::Runtime.
#pragma once

#include <memory>
#include <utility>

#include <hixl/diagnosis.hpp>
#include <hixl/runtime.hpp>

#include "core/core.hpp"

namespace hixl {

class Runtime::State {
 public:
  explicit State(std::unique_ptr<core::Core> c) : core(std::move(c)) {}
  std::unique_ptr<core::Core> core;
  std::unique_ptr<Diagnosis> diagnosis;  ///< of RuntimeOptions::diagnosis; closes before the core
};

/// How other classes of the public interface come to the core.
class RuntimeDoor {
 public:
  [[nodiscard]] static core::Core& core(Runtime& runtime) noexcept { return *runtime.state_->core; }
  /// A runtime of this core, which answers hixl_diag if its options say so. In diagnosis.cpp.
  [[nodiscard]] static Result<std::unique_ptr<Runtime>> open(std::unique_ptr<core::Core> core);
};

}  // namespace hixl
