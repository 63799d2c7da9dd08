// SPDX-License-Identifier: Apache-2.0
//
// RemoteRegion and RemoteAddress as Python values: immutable, comparable, and they may be pickled, so that a program
// can hand them on by means of its own.
#pragma once

#include <hixl/types.hpp>

#include "abi.hpp"

namespace hixl::python {

[[nodiscard]] PyObject* to_python(const RemoteRegion& region);
[[nodiscard]] PyObject* to_python(const RemoteAddress& address);

}  // namespace hixl::python
