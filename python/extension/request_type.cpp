// SPDX-License-Identifier: Apache-2.0
#include "request_type.hpp"

#include <algorithm>
#include <span>
#include <thread>
#include <vector>

#include "arguments.hpp"
#include "doorbell.hpp"
#include "module.hpp"

namespace hixl::python {

PyObject* to_python(Request&& request) { return construct<RequestBody>(types().request, std::move(request)); }

namespace {

/// What a copy has learned becomes the object's, if it has seen the end. The GIL is held.
Result<void> settle(RequestBody& body, Request& copy, const Result<void>& seen) {
  if (body.ended) return body.request.query();
  // Errors of the call itself (BUSY, the time of a wait, WOULD_DEADLOCK) are no end.
  if (!seen && (seen.error().code == ErrorCode::invalid_request || !copy.done())) return seen;
  body.request = std::move(copy);
  body.ended = true;
  return body.request.query();
}

Result<void> look(RequestBody& body) {
  if (body.ended) return body.request.query();
  Request copy = body.request;
  const Result<void> seen = copy.query();
  return settle(body, copy, seen);
}

/// A thread that waits on a copy may take the end and hand the slot on before it has the GIL to leave the end here:
/// what this thread learns then is INVALID_REQUEST, and the end is a moment away.
bool end_is_coming(const RequestBody& body, const Result<void>& seen) {
  return !seen && seen.error().code == ErrorCode::invalid_request && !body.ended && body.waiting > 0;
}

void give_way() {
  without_gil([] {
    std::this_thread::yield();
    return 0;
  });
}

Result<void> look_for_end(RequestBody& body) {
  Result<void> seen = look(body);
  while (end_is_coming(body, seen)) {
    give_way();
    seen = look(body);
  }
  return seen;
}

PyObject* request_done(PyObject* self, PyObject*) {
  const Result<void> seen = look_for_end(body_of<RequestBody>(self));
  return PyBool_FromLong(
      static_cast<long>(seen || body_of<RequestBody>(self).ended || seen.error().code != ErrorCode::busy));
}

PyObject* request_query(PyObject* self, PyObject*) { return none_or_raise(look_for_end(body_of<RequestBody>(self))); }

PyObject* request_value(PyObject* self, PyObject*) {
  RequestBody& body = body_of<RequestBody>(self);
  const Result<void> seen = look_for_end(body);
  if (!seen) return raise(seen.error());
  const auto value = body.request.value();
  return value ? PyLong_FromUnsignedLongLong(*value) : raise(value.error());
}

PyObject* request_wait(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"timeout"};
  Values<1> v;
  Timeout timeout{};
  if (!read(v, "wait", parameters, 1, 0, arguments, count, names) || !to_timeout(v[0], "timeout", timeout)) {
    return nullptr;
  }
  RequestBody& body = body_of<RequestBody>(self);
  if (body.ended) return none_or_raise(body.request.query());
  Request copy = body.request;
  ++body.waiting;
  Result<void> seen = without_gil([&] { return copy.wait(timeout); });
  --body.waiting;
  seen = settle(body, copy, seen);
  while (end_is_coming(body, seen)) {
    give_way();
    seen = look(body);
  }
  return none_or_raise(seen);
}

PyObject* request_cancel(PyObject* self, PyObject*) {
  RequestBody& body = body_of<RequestBody>(self);
  if (body.ended) Py_RETURN_NONE;
  return none_or_raise(body.request.cancel());
}

/// then(doorbell, ticket): rings after the end. False: it has ended already, ask the request.
PyObject* request_then(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"doorbell", "ticket"};
  Values<2> v;
  if (!read(v, "then", parameters, 2, 2, arguments, count, names)) return nullptr;
  RequestBody& body = body_of<RequestBody>(self);
  const Result<void> now = look_for_end(body);
  if (body.ended) Py_RETURN_FALSE;
  if (!now && now.error().code != ErrorCode::busy) return raise(now.error());
  auto notice = open_notice(v[0], v[1], nullptr);
  if (notice == nullptr) return nullptr;
  Request copy = body.request;
  const Result<void> asked = copy.then({ring_completion, notice.get()});
  if (!asked) {
    drop_notice(std::move(notice));
    const Result<void> end = settle(body, copy, copy.query());
    if (body.ended) Py_RETURN_FALSE;
    return raise(end ? asked.error() : end.error());
  }
  static_cast<void>(notice.release());
  // An end that came since it was looked for is with the copy alone.
  static_cast<void>(settle(body, copy, copy.query()));
  Py_RETURN_TRUE;
}

PyObject* request_text(PyObject* self) {
  RequestBody& body = body_of<RequestBody>(self);
  if (!body.ended) return PyUnicode_FromString("Request(open)");
  const Result<void> end = body.request.query();
  const std::string word = end ? "done" : std::string(name(end.error().code));
  return PyUnicode_FromFormat("Request(%s)", word.c_str());
}

/// The requests of any iterable, as objects (owned) and as copies.
struct Several {
  PyObject* objects = nullptr;
  std::vector<Request> copies;

  bool read(PyObject* iterable) {
    objects = PySequence_List(iterable);
    if (objects == nullptr) return false;
    const Py_ssize_t size = PyList_Size(objects);
    std::vector<PyObject*> seen;
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* one = PyList_GetItem(objects, i);
      if (!PyObject_TypeCheck(one, types().request)) {
        PyErr_Format(PyExc_TypeError, "requests must be hixl.Request, not %R", Py_TYPE(one));
        Py_CLEAR(objects);
        return false;
      }
      copies.push_back(body_of<RequestBody>(one).request);
      seen.push_back(one);
    }
    std::sort(seen.begin(), seen.end());
    if (std::adjacent_find(seen.begin(), seen.end()) == seen.end()) return true;
    PyErr_SetString(PyExc_ValueError, "the same request is there twice");
    Py_CLEAR(objects);
    return false;
  }
  void count(int step) {
    for (std::size_t i = 0; i < copies.size(); ++i) at(i).waiting += step;
  }
  [[nodiscard]] RequestBody& at(std::size_t i) {
    return body_of<RequestBody>(PyList_GetItem(objects, static_cast<Py_ssize_t>(i)));
  }
  /// What the copies have learned becomes the objects'.
  void settle_all() {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      if (copies[i].done()) static_cast<void>(settle(at(i), copies[i], copies[i].query()));
    }
  }
};

}  // namespace

PyObject* wait_all(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"requests", "timeout"};
  Values<2> v;
  Timeout timeout{};
  Several several;
  if (!read(v, "wait_all", parameters, 2, 1, arguments, count, names) || !to_timeout(v[1], "timeout", timeout) ||
      !several.read(v[0])) {
    return nullptr;
  }
  several.count(1);
  const Result<void> result = without_gil([&] { return hixl::wait_all(several.copies, timeout); });
  several.count(-1);
  several.settle_all();
  Py_DECREF(several.objects);
  return none_or_raise(result);
}

PyObject* wait_any(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"requests", "timeout"};
  Values<2> v;
  Timeout timeout{};
  Several several;
  if (!read(v, "wait_any", parameters, 2, 1, arguments, count, names) || !to_timeout(v[1], "timeout", timeout) ||
      !several.read(v[0])) {
    return nullptr;
  }
  several.count(1);
  const Result<std::size_t> which = without_gil([&] { return hixl::wait_any(several.copies, timeout); });
  several.count(-1);
  several.settle_all();
  Py_DECREF(several.objects);
  return which ? PyLong_FromSize_t(*which) : raise(which.error());
}

bool add_request_type(PyObject* module) {
  static PyMethodDef methods[] = {
      {"done", request_done, METH_NOARGS, "True when the operation has ended"},
      {"query", request_query, METH_NOARGS, "None for success; raises BUSY while it is under way, else what failed"},
      {"value", request_value, METH_NOARGS, "of an atomic that succeeded: the word before it"},
      method("wait", request_wait, "wait(timeout=None): until the end; raises what failed"),
      {"cancel", request_cancel, METH_NOARGS, "asks that it end now; it ends by the usual way"},
      method("_then", request_then, "_then(doorbell, ticket)"),
      {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(destroy<RequestBody>)},
                                {Py_tp_methods, methods},
                                {Py_tp_repr, reinterpret_cast<void*>(request_text)},
                                {Py_tp_doc, const_cast<char*>("One operation that was posted.")},
                                {0, nullptr}};
  static PyType_Spec spec = {"hixl.Request", sizeof(Boxed<RequestBody>), 0, Py_TPFLAGS_DEFAULT, slots};
  return add_type(module, spec, "Request", types().request);
}

}  // namespace hixl::python
