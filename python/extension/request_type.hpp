// SPDX-License-Identifier: Apache-2.0
//
// Request as a Python type. One object may be used by any number of threads, which a hixl::Request may not: each call
// works on a copy, and the one that sees the end leaves it in the object.
#pragma once

#include <hixl/request.hpp>

#include "abi.hpp"

namespace hixl::python {

struct RequestBody {
  Request request;
  int waiting = 0;     ///< threads inside wait()
  bool ended = false;  ///< `request` has seen the end
};

[[nodiscard]] PyObject* to_python(Request&& request);
/// wait_all() and wait_any() of the module.
PyObject* wait_all(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
PyObject* wait_any(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* names);

}  // namespace hixl::python
