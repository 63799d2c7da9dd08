// SPDX-License-Identifier: Apache-2.0
//
// DLPack: how array libraries lend each other their memory. The structures are those of the specification, version 0
// ("dltensor"), which every library still gives.
#pragma once

#include "abi.hpp"

namespace hixl::python {

/// (address, bytes, capsule) of a tensor in memory that the CPU can use, without gaps. BufferError otherwise.
PyObject* dlpack_lend(PyObject* module, PyObject* arguments);

}  // namespace hixl::python
