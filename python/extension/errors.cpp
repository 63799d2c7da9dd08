// SPDX-License-Identifier: Apache-2.0
//
// From the library's Error to an exception: the class is hixl/errors.py's to choose, the text the library's.
#include <hixl/error.hpp>

#include "module.hpp"

namespace hixl::python {

Hooks& hooks() noexcept {
  static Hooks hooks;
  return hooks;
}

PyObject* exception_of(const Error& error) {
  const ErrorDetail& d = error.detail;
  const Py_ssize_t named = d.missing_count < d.missing.size() ? static_cast<Py_ssize_t>(d.missing_count)
                                                              : static_cast<Py_ssize_t>(d.missing.size());
  PyObject* missing = PyTuple_New(named);
  if (missing == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* rank = PyLong_FromUnsignedLong(d.missing[static_cast<std::size_t>(i)]);
    if (rank == nullptr) {
      Py_DECREF(missing);
      return nullptr;
    }
    PyTuple_SetItem(missing, i, rank);
  }
  const std::string text = error.message();
  // -1: no such rank, or entry; the order is that of hixl.ErrorDetail.
  return PyObject_CallFunction(
      hooks().error, "Is(LIIiKKKKKINy#IL)", static_cast<unsigned>(error.code), text.c_str(),
      d.rank == k_no_rank ? -1LL : static_cast<long long>(d.rank), static_cast<unsigned>(d.link),
      static_cast<unsigned>(d.stage), d.os_error, d.address, d.length, d.nearest_base, d.nearest_length, d.limit,
      d.missing_count, missing, reinterpret_cast<const char*>(d.host.data()), static_cast<Py_ssize_t>(d.host.size()),
      static_cast<unsigned>(d.port), d.entry == k_no_entry ? -1LL : static_cast<long long>(d.entry));
}

PyObject* raise(const Error& error) {
  PyObject* exception = exception_of(error);
  if (exception == nullptr) return nullptr;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  Py_DECREF(exception);
  return nullptr;
}

PyObject* none_or_raise(const Result<void>& result) {
  if (!result) return raise(result.error());
  Py_RETURN_NONE;
}

PyObject* none_or_exception(const Result<void>& result) {
  if (!result) return exception_of(result.error());
  Py_RETURN_NONE;
}

}  // namespace hixl::python
