// SPDX-License-Identifier: Apache-2.0
//
// Runtime as a Python type. Every call that may wait gives the GIL away; posts do not wait and keep it.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include <hixl/runtime.hpp>

#include "abi.hpp"
#include "arguments.hpp"

namespace hixl::python {

struct RuntimeBody {
  std::unique_ptr<Runtime> runtime;
  /// What registered memory belongs to, by region, once for each registration.
  std::unordered_multimap<std::uint64_t, Local> kept;
};

/// The runtime of a Runtime or Group object.
[[nodiscard]] Runtime& runtime_of(PyObject* self) noexcept;
/// True if the Region belongs to this Runtime object; else false with ValueError: keys are numbers of one runtime.
[[nodiscard]] bool owns_region(PyObject* runtime, PyObject* region);
/// As to_regions(), and all of them are this runtime's.
[[nodiscard]] bool to_own_regions(PyObject* runtime, PyObject* value, std::vector<Region>& out);

/// A small payload is copied in the post, before anything shows that it is there; of a bare address that has to be
/// asked first. False with NOT_REGISTERED, or what else is wrong with it, set.
[[nodiscard]] bool is_proven(PyObject* self, const Local& local);

/// Options from a dict of Python values over `options`; false with an exception that names the option.
[[nodiscard]] bool read_options(PyObject* given, RuntimeOptions& options);
/// The other way round, for whoever wants to see what the environment says.
[[nodiscard]] PyObject* to_python(const RuntimeOptions& options);

/// Rows of the table of methods, by file.
void add_memory_methods(std::vector<PyMethodDef>& methods);
void add_transfer_methods(std::vector<PyMethodDef>& methods);
void add_atomic_methods(std::vector<PyMethodDef>& methods);
void add_together_methods(std::vector<PyMethodDef>& methods);
void add_inspect_methods(std::vector<PyMethodDef>& methods);
/// Those of a Group.
void add_group_transfer_methods(std::vector<PyMethodDef>& methods);

}  // namespace hixl::python
