// SPDX-License-Identifier: Apache-2.0
//
// CompletionQueue and Completion as Python types.
#pragma once

#include <memory>

#include <hixl/completion_queue.hpp>

#include "abi.hpp"

namespace hixl::python {

struct QueueBody {
  std::unique_ptr<CompletionQueue> queue;
};

}  // namespace hixl::python
