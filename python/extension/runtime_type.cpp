// SPDX-License-Identifier: Apache-2.0
#include "runtime_type.hpp"

#include "group_type.hpp"
#include "module.hpp"

namespace hixl::python {

Runtime& runtime_of(PyObject* self) noexcept {
  PyObject* object = Py_TYPE(self) == types().group ? body_of<GroupBody>(self).runtime : self;
  return *body_of<RuntimeBody>(object).runtime;
}

bool is_proven(PyObject* self, const Local& local) {
  constexpr std::uint64_t k_inline_most = 256;  // RuntimeOptions::max_inline; what is longer the library looks up
  if (!local.unproven() || local.size() == 0 || local.size() > k_inline_most) return true;
  // As sink of a get, since as source of a put the library would answer that it copies. Memory that is registered for
  // reading only is there as well.
  const Result<void> answer = runtime_of(self).check_access(local.data(), local.size(), Rights::write);
  if (answer || answer.error().code == ErrorCode::access_denied) return true;
  raise(answer.error());
  return false;
}

namespace {

/// _core.Runtime(options: dict, environment: bool, polled: bool)
PyObject* runtime_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"options", "environment", "polled", nullptr};
  PyObject* given = nullptr;
  int environment = 0;
  int polled = 0;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O!pp:Runtime", const_cast<char**>(names), &PyDict_Type, &given,
                                  &environment, &polled) == 0) {
    return nullptr;
  }
  RuntimeOptions options;
  if (environment != 0) {
    auto from_environment = RuntimeOptions::from_environment();
    if (!from_environment) return raise(from_environment.error());
    options = std::move(*from_environment);
  }
  if (!read_options(given, options)) return nullptr;
  auto runtime = without_gil([&] { return polled != 0 ? Runtime::create_polled(options) : Runtime::create(options); });
  return runtime ? construct<RuntimeBody>(type, std::move(*runtime)) : raise(runtime.error());
}

/// Ends the runtime if the program has not: as C++ does it, at most 5 s. Then nothing touches what was registered.
void runtime_deallocate(PyObject* self) {
  std::unique_ptr<Runtime> runtime = std::move(body_of<RuntimeBody>(self).runtime);
  without_gil([&] {
    runtime.reset();
    return 0;
  });
  destroy<RuntimeBody>(self);
}

PyObject* rank(PyObject* self, void*) { return PyLong_FromUnsignedLong(runtime_of(self).rank()); }
PyObject* world_size(PyObject* self, void*) { return PyLong_FromUnsignedLong(runtime_of(self).world_size()); }
PyObject* incarnation(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(runtime_of(self).incarnation()); }

PyObject* fileno(PyObject* self, PyObject*) {
  const int fd = runtime_of(self).fd();
  if (fd >= 0) return PyLong_FromLong(fd);
  PyErr_SetString(PyExc_ValueError, "only a runtime of Runtime.polled() is turned by hand");
  return nullptr;
}

PyObject* poll(PyObject* self, PyObject*) {
  Runtime& runtime = runtime_of(self);
  return PyLong_FromSize_t(without_gil([&] { return runtime.poll(); }));
}

/// How much Python memory the runtime holds for the program: for whoever looks for a leak.
PyObject* kept(PyObject* self, void*) { return PyLong_FromSize_t(body_of<RuntimeBody>(self).kept.size()); }

}  // namespace

bool add_runtime_type(PyObject* module) {
  static std::vector<PyMethodDef> methods;
  methods = {{"fileno", fileno, METH_NOARGS, "of a polled runtime: readable when poll() has something to do"},
             {"poll", poll, METH_NOARGS, "one bounded turn of a polled runtime; never blocks"}};
  add_memory_methods(methods);
  add_transfer_methods(methods);
  add_atomic_methods(methods);
  add_together_methods(methods);
  add_inspect_methods(methods);
  methods.push_back({});
  static PyGetSetDef members[] = {{"rank", rank, nullptr, "this rank", nullptr},
                                  {"world_size", world_size, nullptr, "ranks there may be", nullptr},
                                  {"incarnation", incarnation, nullptr, "this life of the rank", nullptr},
                                  {"_kept", kept, nullptr, "registrations whose buffers are held", nullptr},
                                  {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(runtime_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(runtime_deallocate)},
                                {Py_tp_methods, methods.data()},
                                {Py_tp_getset, members},
                                {0, nullptr}};
  static PyType_Spec spec = {"hixl._core.Runtime", sizeof(Boxed<RuntimeBody>), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  return add_type(module, spec, "Runtime", types().runtime);
}

}  // namespace hixl::python
