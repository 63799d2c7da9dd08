// SPDX-License-Identifier: Apache-2.0
//
// hixl._core: the compiled half of package hixl. It converts arguments and answers, and gives the GIL away; everything
// else is the library's, or Python's.
#include "module.hpp"

#include <cstring>

#include <hixl/error.hpp>

#include "dlpack.hpp"
#include "request_type.hpp"
#include "runtime_type.hpp"

namespace hixl::python {

Types& types() noexcept {
  static Types types;
  return types;
}

PyObject* refuse_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyErr_Format(PyExc_TypeError, "%R is made by the library only", type);
  return nullptr;
}

bool add_type(PyObject* module, PyType_Spec& spec, const char* name, PyTypeObject*& out) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  out = reinterpret_cast<PyTypeObject*>(type);  // one reference is ours for good
  Py_INCREF(type);
  if (PyModule_AddObject(module, name, type) == 0) return true;
  Py_DECREF(type);
  return false;
}

namespace {

/// connect(error, tensor, book, unbook, peer_addresses): the functions of the Python half.
PyObject* connect(PyObject*, PyObject* arguments) {
  Hooks given;
  if (PyArg_ParseTuple(arguments, "OOOOO:connect", &given.error, &given.tensor, &given.book, &given.unbook,
                       &given.peer_addresses) == 0) {
    return nullptr;
  }
  for (PyObject* hook : {given.error, given.tensor, given.book, given.unbook, given.peer_addresses}) Py_INCREF(hook);
  hooks() = given;  // once a process
  Py_RETURN_NONE;
}

/// [(name, number, kind, what, remedy), …] of all error codes.
PyObject* error_codes(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  for (const ErrorCode code : {
#define HIXL_CODE(name, number, kind, what, remedy) ErrorCode::name,
           HIXL_ERROR_CODES(HIXL_CODE)
#undef HIXL_CODE
       }) {
    if (list == nullptr) break;
    PyObject* row = Py_BuildValue("s#IIs#s#", name(code).data(), static_cast<Py_ssize_t>(name(code).size()),
                                  static_cast<unsigned>(code), static_cast<unsigned>(kind(code)), what(code).data(),
                                  static_cast<Py_ssize_t>(what(code).size()), remedy(code).data(),
                                  static_cast<Py_ssize_t>(remedy(code).size()));
    if (row == nullptr || PyList_Append(list, row) != 0) Py_CLEAR(list);
    Py_XDECREF(row);
  }
  return list;
}

PyObject* options_from_environment(PyObject*, PyObject*) {
  const auto options = RuntimeOptions::from_environment();
  return options ? to_python(*options) : raise(options.error());
}

/// The library has one set of types and hooks a process; objects of two interpreters would meet in them.
bool first_interpreter() {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) return true;
  PyErr_SetString(PyExc_ImportError,
                  "hixl works in the main interpreter only: use a process for each rank, not a subinterpreter");
  return false;
}

int fill(PyObject* module) {
  const bool good = first_interpreter() && add_queue_types(module) && add_remote_types(module) &&
                    add_region_type(module) && add_request_type(module) && add_batch_type(module) &&
                    add_doorbell_type(module) && add_group_type(module) && add_store_type(module) &&
                    add_runtime_type(module) && add_kv_types(module);
  return good ? 0 : -1;
}

}  // namespace
}  // namespace hixl::python

PyMODINIT_FUNC PyInit__core() {
  using namespace hixl::python;
  static PyMethodDef functions[] = {
      {"connect", connect, METH_VARARGS, nullptr},
      {"error_codes", error_codes, METH_NOARGS, nullptr},
      {"options_from_environment", options_from_environment, METH_NOARGS,
       "options that the environment asks for, as keyword arguments of Runtime"},
      {"dlpack_lend", dlpack_lend, METH_VARARGS, "dlpack_lend(capsule): (address, bytes, what holds it)"},
      method("wait_all", wait_all, "wait_all(requests, timeout=None): until all have ended; raises the first failure"),
      method("wait_any", wait_any, "wait_any(requests, timeout=None): index of one that has ended"),
      {}};
  static PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(fill)}, {0, nullptr}};
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "hixl._core", nullptr, 0, functions, slots, nullptr, nullptr, nullptr};
  return PyModuleDef_Init(&definition);
}
