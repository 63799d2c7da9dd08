// SPDX-License-Identifier: Apache-2.0
//
// Region: registered or allocated memory of this rank, with Python's buffer protocol over it.
//
// Owner: the program. Its runtime holds what lies under it (a numpy array, a tensor) until deregister() has succeeded,
// also when nobody holds the Region; and a memoryview of it holds the Region and the runtime, so that no view ever
// looks at memory that is gone. deregister() is refused (BufferError) while there are views; once it has begun, whoever
// wants the memory is (STALE).
#pragma once

#include <hixl/memory.hpp>

#include "abi.hpp"

namespace hixl::python {

struct RegionBody {
  Region region;
  PyObject* runtime = nullptr;  ///< owned
  Py_ssize_t views = 0;
  bool closing = false;  ///< deregister() is under way: the memory may go at any moment
  bool closed = false;   ///< it has succeeded
  /// False with STALE set: it is being, or has been, deregistered.
  [[nodiscard]] bool usable() const;
};

[[nodiscard]] PyObject* to_python(const Region& region, PyObject* runtime);

}  // namespace hixl::python
