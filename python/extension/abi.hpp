// SPDX-License-Identifier: Apache-2.0
//
// Python's C API as this extension uses it: the stable ABI of 3.9, so that one binary serves 3.9 and everything later.
// Two things that 3.9 has, and that the stable ABI names only from 3.11 (buffers) and 3.10 (fast calls) on, are
// declared here as those versions declare them; the tests run the binary under every version that they find.
#pragma once

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x03090000
#endif
#include <Python.h>

#include <cstdint>
#include <new>
#include <utility>

#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif
#ifndef Py_bf_getbuffer
#define Py_bf_getbuffer 1
#define Py_bf_releasebuffer 2
#endif
#ifndef PyBUF_SIMPLE
extern "C" {
struct Py_buffer {
  void* buf;
  PyObject* obj;
  Py_ssize_t len;
  Py_ssize_t itemsize;
  int readonly;
  int ndim;
  char* format;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  Py_ssize_t* suboffsets;
  void* internal;
};
PyAPI_FUNC(int) PyObject_CheckBuffer(PyObject* object);
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject* object, Py_buffer* view, int flags);
PyAPI_FUNC(int)
    PyBuffer_FillInfo(Py_buffer* view, PyObject* object, void* data, Py_ssize_t size, int readonly, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer* view);
}
#define PyBUF_SIMPLE 0
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008
#endif

namespace hixl::python {

/// Runs `call`, which must not throw or touch Python, without the GIL. No object whose destructor takes it back: at the
/// end of the interpreter PyEval_RestoreThread() unwinds the threads that come back, and a destructor must not unwind.
template <class Call>
auto without_gil(Call&& call) {
  PyThreadState* const state = PyEval_SaveThread();
  auto result = call();
  PyEval_RestoreThread(state);
  return result;
}

/// The C++ part of an object: made by construct(), ended in tp_dealloc by destroy().
template <class Body>
struct Boxed {
  PyObject_HEAD Body body;
};
template <class Body>
[[nodiscard]] Body& body_of(PyObject* self) noexcept {
  return reinterpret_cast<Boxed<Body>*>(self)->body;
}
template <class Body, class... Arguments>
[[nodiscard]] PyObject* construct(PyTypeObject* type, Arguments&&... arguments) {
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* self = allocate(type, 0);
  if (self != nullptr) new (&body_of<Body>(self)) Body{std::forward<Arguments>(arguments)...};
  return self;
}
template <class Body>
void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  body_of<Body>(self).~Body();
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

/// A method that takes keywords, for a table of PyMethodDef.
using FastCall = PyObject* (*)(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
[[nodiscard]] inline PyMethodDef method(const char* name, FastCall function, const char* text) noexcept {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL | METH_KEYWORDS,
          text};
}

}  // namespace hixl::python
