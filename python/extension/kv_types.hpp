// SPDX-License-Identifier: Apache-2.0
//
// DataDist (LLM-DataDist), RemoteCache and Transfer as Python types. A DataDist holds its Runtime; the others stand
// alone. Shapes come as plain tuples of numbers, which hixl/kv.py gives names to.
#pragma once

#include <memory>

#include <hixl/kv/data_dist.hpp>

#include "abi.hpp"

namespace hixl::python {

struct DataDistBody {
  std::unique_ptr<kv::DataDist> dist;
  PyObject* runtime = nullptr;  ///< owned
};

[[nodiscard]] kv::DataDist& dist_of(PyObject* self) noexcept;
[[nodiscard]] PyObject* to_python(const kv::RemoteCache& cache);
/// (slot, version) of a registration.
[[nodiscard]] bool to_cache_id(PyObject* value, kv::CacheId& out);

/// Rows of DataDist's table of methods, by file.
void add_kv_move_methods(std::vector<PyMethodDef>& methods);
[[nodiscard]] bool add_kv_move_types(PyObject* module);

}  // namespace hixl::python
