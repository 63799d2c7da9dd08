// SPDX-License-Identifier: Apache-2.0
//
// Batch: puts and gets to one rank, put together once and posted as often as wanted: posting it makes no object but its
// Request. It holds the buffers that its entries name.
#pragma once

#include <vector>

#include <hixl/transfer.hpp>

#include "abi.hpp"
#include "arguments.hpp"

namespace hixl::python {

struct BatchBody {
  std::vector<BatchEntry> entries;
  std::vector<Local> held;
  int posting = 0;  ///< threads that read `entries` without the GIL
};

}  // namespace hixl::python
