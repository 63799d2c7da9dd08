// SPDX-License-Identifier: Apache-2.0
//
// What all parts of the extension share: its types, and the functions of the Python half that it calls.
#pragma once

#include <hixl/result.hpp>

#include "abi.hpp"

namespace hixl::python {

/// Made once; the extension refuses to be loaded by a second interpreter of the process.
struct Types {
  PyTypeObject* runtime = nullptr;
  PyTypeObject* region = nullptr;
  PyTypeObject* remote_region = nullptr;
  PyTypeObject* remote_address = nullptr;
  PyTypeObject* request = nullptr;
  PyTypeObject* queue = nullptr;
  PyTypeObject* batch = nullptr;
  PyTypeObject* doorbell = nullptr;
  PyTypeObject* group = nullptr;
  PyTypeObject* store = nullptr;
  PyTypeObject* completion = nullptr;
};
[[nodiscard]] Types& types() noexcept;

/// Functions of hixl/, handed in by _core.connect(); null before.
struct Hooks {
  PyObject* error = nullptr;           ///< (code, message, detail) -> exception
  PyObject* tensor = nullptr;          ///< (object, writable) -> (address, bytes, what holds it)
  PyObject* book = nullptr;            ///< (callback, user_data) -> (queue, ticket)
  PyObject* unbook = nullptr;          ///< (ticket)
  PyObject* peer_addresses = nullptr;  ///< (rank, regions, exception or None) -> object
};
[[nodiscard]] Hooks& hooks() noexcept;

/// Each adds one type, or several; false with an exception set.
[[nodiscard]] bool add_runtime_type(PyObject* module);
[[nodiscard]] bool add_region_type(PyObject* module);
[[nodiscard]] bool add_remote_types(PyObject* module);
[[nodiscard]] bool add_request_type(PyObject* module);
[[nodiscard]] bool add_queue_types(PyObject* module);
[[nodiscard]] bool add_batch_type(PyObject* module);
[[nodiscard]] bool add_doorbell_type(PyObject* module);
[[nodiscard]] bool add_group_type(PyObject* module);
[[nodiscard]] bool add_store_type(PyObject* module);
[[nodiscard]] bool add_kv_types(PyObject* module);
/// Makes a type from its spec, keeps it in `out` and shows it as `name`.
/// tp_new of types that only the library makes objects of: TypeError. Without it, object's would leave the body unmade.
PyObject* refuse_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords);
[[nodiscard]] bool add_type(PyObject* module, PyType_Spec& spec, const char* name, PyTypeObject*& out);

// ---- errors ----
/// A new exception for `error`; null with another one set.
[[nodiscard]] PyObject* exception_of(const Error& error);
/// Sets it; null, for `return raise(error);`.
PyObject* raise(const Error& error);
/// None, or null with the exception set.
[[nodiscard]] PyObject* none_or_raise(const Result<void>& result);
/// A new reference to None for success, else to the exception.
[[nodiscard]] PyObject* none_or_exception(const Result<void>& result);

}  // namespace hixl::python
