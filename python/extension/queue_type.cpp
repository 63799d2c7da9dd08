// SPDX-License-Identifier: Apache-2.0
#include "queue_type.hpp"

#include <algorithm>

#include "arguments.hpp"
#include "doorbell.hpp"
#include "module.hpp"

namespace hixl::python {
namespace {

/// Ends taken in one call: about 16 KiB on the stack, without an allocation.
constexpr std::size_t k_taken_at_once = 64;

PyObject* written_of(const Completion& completion) {
  std::size_t used = 0;
  while (used < k_written_ranges && completion.written[used].begin != completion.written[used].end) ++used;
  PyObject* ranges = PyTuple_New(static_cast<Py_ssize_t>(used));
  for (std::size_t i = 0; i < used && ranges != nullptr; ++i) {
    PyObject* range = Py_BuildValue("KK", completion.written[i].begin, completion.written[i].end);
    if (range == nullptr) {
      Py_CLEAR(ranges);
    } else {
      PyTuple_SetItem(ranges, static_cast<Py_ssize_t>(i), range);
    }
  }
  return ranges;
}

PyObject* to_list(const Completion* completions, std::size_t count) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(count));
  for (std::size_t i = 0; i < count && list != nullptr; ++i) {
    PyObject* one = to_python(completions[i]);
    if (one == nullptr) {
      Py_CLEAR(list);
    } else {
      PyList_SetItem(list, static_cast<Py_ssize_t>(i), one);
    }
  }
  return list;
}

PyObject* queue_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"capacity", nullptr};
  PyObject* given = nullptr;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:CompletionQueue", const_cast<char**>(names), &given) == 0) {
    return nullptr;
  }
  std::uint32_t capacity = 1024;
  if (given != nullptr && !to_u32(given, "capacity", capacity)) return nullptr;
  auto queue = CompletionQueue::create(capacity);
  if (!queue) return raise(queue.error());
  return construct<QueueBody>(type, std::move(*queue));
}

PyObject* queue_fd(PyObject* self, PyObject*) { return PyLong_FromLong(body_of<QueueBody>(self).queue->fd()); }

bool most_of(PyObject* given, std::uint64_t& most) {
  most = k_taken_at_once;
  if (given == nullptr || given == Py_None) return true;
  if (!to_u64(given, "most", most)) return false;
  if (most != 0) {
    most = std::min<std::uint64_t>(most, k_taken_at_once);
    return true;
  }
  PyErr_SetString(PyExc_ValueError, "most is 0; it must be 1 or more");
  return false;
}

PyObject* queue_poll(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"most"};
  Values<1> v;
  std::uint64_t most = 0;
  if (!read(v, "poll", parameters, 1, 0, arguments, count, names) || !most_of(v[0], most)) return nullptr;
  Completion taken[k_taken_at_once];
  return to_list(taken, body_of<QueueBody>(self).queue->poll({taken, most}));
}

PyObject* queue_wait(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"timeout", "most"};
  Values<2> v;
  std::uint64_t most = 0;
  Timeout timeout{};
  if (!read(v, "wait", parameters, 2, 0, arguments, count, names) || !to_timeout(v[0], "timeout", timeout) ||
      !most_of(v[1], most)) {
    return nullptr;
  }
  // The queue knows no default; that of a runtime is 30 s.
  if (timeout == k_default_timeout) timeout = std::chrono::seconds(30);
  CompletionQueue& queue = *body_of<QueueBody>(self).queue;
  Completion taken[k_taken_at_once];
  const auto found = without_gil([&] { return queue.wait({taken, most}, timeout); });
  if (!found) return raise(found.error());
  return to_list(taken, *found);
}

PyObject* queue_in_use(PyObject* self, void*) {
  return PyLong_FromUnsignedLong(body_of<QueueBody>(self).queue->in_use());
}
PyObject* queue_capacity(PyObject* self, void*) {
  return PyLong_FromUnsignedLong(body_of<QueueBody>(self).queue->capacity());
}

}  // namespace

PyObject* to_python(const Completion& completion) {
  PyObject* fields[5] = {none_or_exception(completion.result), PyLong_FromUnsignedLongLong(completion.user_data),
                         PyLong_FromUnsignedLongLong(completion.bytes), PyLong_FromUnsignedLongLong(completion.value),
                         written_of(completion)};
  PyObject* self = PyStructSequence_New(types().completion);
  bool good = self != nullptr;
  for (PyObject* field : fields) good = good && field != nullptr;
  for (Py_ssize_t i = 0; i < 5; ++i) {
    if (good) {
      PyStructSequence_SetItem(self, i, fields[i]);
    } else {
      Py_XDECREF(fields[i]);
    }
  }
  if (!good) Py_CLEAR(self);
  return self;
}

bool add_queue_types(PyObject* module) {
  static PyStructSequence_Field fields[] = {{"error", "None for success, else the exception that tells what failed"},
                                            {"user_data", "as given at the post"},
                                            {"bytes", "of the operation; of one that failed, those known to be there"},
                                            {"value", "of an atomic: the word before it"},
                                            {"written", "of a put or get that failed: ranges known to be there"},
                                            {nullptr, nullptr}};
  static PyStructSequence_Desc shape = {"hixl.Completion", "How one operation has ended.", fields, 5};
  types().completion = PyStructSequence_NewType(&shape);
  if (types().completion == nullptr) return false;
  PyObject* shown = reinterpret_cast<PyObject*>(types().completion);
  Py_INCREF(shown);
  if (PyModule_AddObject(module, "Completion", shown) != 0) {
    Py_DECREF(shown);
    return false;
  }
  static PyGetSetDef members[] = {
      {"in_use", queue_in_use, nullptr, "operations that are open, and ends not yet polled", nullptr},
      {"capacity", queue_capacity, nullptr, "places", nullptr},
      {}};
  static PyMethodDef methods[] = {
      {"fileno", queue_fd, METH_NOARGS, "readable while there is something to poll"},
      method("poll", queue_poll, "poll(most=64): ends that are there, as a list; at most 64 a call"),
      method("wait", queue_wait, "wait(timeout=30, most=64): the same, but waits until there is something"),
      {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(queue_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(destroy<QueueBody>)},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, members},
                                {Py_tp_doc, const_cast<char*>("The ends of many operations in one place.")},
                                {0, nullptr}};
  static PyType_Spec spec = {"hixl.CompletionQueue", sizeof(Boxed<QueueBody>), 0, Py_TPFLAGS_DEFAULT, slots};
  return add_type(module, spec, "CompletionQueue", types().queue);
}

}  // namespace hixl::python
