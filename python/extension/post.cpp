// SPDX-License-Identifier: Apache-2.0
#include "post.hpp"

#include "arguments.hpp"
#include "module.hpp"
#include "queue_type.hpp"
#include "request_type.hpp"

namespace hixl::python {
namespace {

bool given(PyObject* value) { return value != nullptr && value != Py_None; }

}  // namespace

bool Post::read(PyObject* const* tail) {
  PyObject* const callback = tail[1];
  PyObject* const queue = tail[2];
  std::vector<LinkKind> kinds;
  if (!to_timeout(tail[0], "timeout", options_.timeout) ||
      (given(tail[3]) && !to_u64(tail[3], "user_data", options_.user_data))) {
    return false;
  }
  if (given(tail[4])) {
    if (!to_link_kinds(tail[4], kinds)) return false;
    for (const LinkKind kind : kinds) options_.links.add(kind);
  }
  if (given(queue)) {
    if (given(callback)) {
      PyErr_SetString(PyExc_TypeError, "give a callback or a queue, not both: callbacks have a queue of their own");
      return false;
    }
    if (!PyObject_TypeCheck(queue, types().queue)) {
      PyErr_Format(PyExc_TypeError, "queue must be a hixl.CompletionQueue, not %R", Py_TYPE(queue));
      return false;
    }
    options_.queue = body_of<QueueBody>(queue).queue.get();
  }
  if (!given(callback)) return true;
  booked_ = PyObject_CallFunction(hooks().book, "OK", callback, options_.user_data);
  if (booked_ == nullptr) return false;
  PyObject* own_queue = nullptr;
  if (PyArg_ParseTuple(booked_, "O!K", types().queue, &own_queue, &options_.user_data) == 0) {
    Py_CLEAR(booked_);
    return false;
  }
  options_.queue = body_of<QueueBody>(own_queue).queue.get();
  return true;
}

PyObject* Post::finish(Result<Request>&& request) {
  if (request) {
    Py_CLEAR(booked_);
    return to_python(std::move(*request));
  }
  if (booked_ != nullptr) {
    PyObject* gone = PyObject_CallFunction(hooks().unbook, "K", options_.user_data);
    Py_CLEAR(booked_);
    if (gone == nullptr) return nullptr;
    Py_DECREF(gone);
  }
  return raise(request.error());
}

}  // namespace hixl::python
