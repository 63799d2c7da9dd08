// SPDX-License-Identifier: Apache-2.0
//
// Release: one region on its way out. It is closed to everybody at once; its end waits for pins, links and lanes.
#pragma once

#include <vector>

#include "core/core.hpp"

namespace hixl::core {

struct Core::Release {
  RegionKey key{};
  Instant deadline{};
  void (*done)(void*, const Result<void>&) = nullptr;  ///< null: nobody waits any more
  void* context = nullptr;
  bool retired = false;
  memory::LeavingWindow leaving{};  ///< once retired: what goes back to the system, piece by piece

  void tell(const Result<void>& result) {
    if (done != nullptr) std::exchange(done, nullptr)(context, result);
  }
};

}  // namespace hixl::core
