// SPDX-License-Identifier: Apache-2.0
//
// Group as a Python type. It holds its Runtime.
#pragma once

#include <hixl/group.hpp>

#include "abi.hpp"

namespace hixl::python {

struct GroupBody {
  Group group;
  PyObject* runtime = nullptr;  ///< owned
};

[[nodiscard]] PyObject* to_python(Group&& group, PyObject* runtime);

}  // namespace hixl::python
