// SPDX-License-Identifier: Apache-2.0
//
// Seeing inside a Runtime. What the library tells about itself comes as the JSON that it makes of it, which the Python
// half reads: one list of fields, which is the library's.
#include <hixl/inspect_text.hpp>

#include "arguments.hpp"
#include "module.hpp"
#include "runtime_type.hpp"

namespace hixl::python {
namespace {

PyObject* text_of(const std::string& text) {
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

/// The loop is asked where it must be, and may take a turn to answer.
template <class Look>
PyObject* show_json(PyObject* self, Look&& look) {
  Runtime& runtime = runtime_of(self);
  const Result<std::string> json = without_gil([&] { return look(runtime); });
  return json ? text_of(*json) : raise(json.error());
}

PyObject* counters(PyObject* self, PyObject*) {
  return show_json(self, [](Runtime& runtime) { return Result<std::string>(to_json(runtime.counters())); });
}
PyObject* links(PyObject* self, PyObject*) {
  return show_json(self, [](Runtime& runtime) { return Result<std::string>(to_json(runtime.links())); });
}
PyObject* dump_regions(PyObject* self, PyObject*) {
  return show_json(self, [](Runtime& runtime) {
    return runtime.dump_regions().map([](const RegionDump& dump) { return to_json(dump); });
  });
}
PyObject* outstanding(PyObject* self, PyObject*) {
  return show_json(self, [](Runtime& runtime) {
    return runtime.outstanding().map([](const std::vector<OperationInfo>& open) { return to_json(open); });
  });
}

/// check_access(memory, size, need): of a remote place, or of local memory.
PyObject* check_access(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"memory", "size", "need"};
  Values<3> v;
  std::uint64_t size = 0;
  Rights need{};
  if (!read(v, "check_access", parameters, 3, 3, arguments, count, names) || !to_u64(v[1], "size", size) ||
      !to_rights(v[2], need)) {
    return nullptr;
  }
  if (PyObject_TypeCheck(v[0], types().remote_address) || PyObject_TypeCheck(v[0], types().remote_region)) {
    RemoteAddress remote;
    if (!to_remote(v[0], "memory", remote)) return nullptr;
    return none_or_raise(runtime_of(self).check_access(remote, size, need));
  }
  Local local;
  if (!local.read(v[0], v[1], false) || (includes(need, Rights::read) && !is_proven(self, local))) return nullptr;
  return none_or_raise(runtime_of(self).check_access(local.data(), local.size(), need));
}

}  // namespace

void add_inspect_methods(std::vector<PyMethodDef>& methods) {
  methods.insert(methods.end(),
                 {{"_counters", counters, METH_NOARGS, nullptr},
                  {"_links", links, METH_NOARGS, nullptr},
                  {"_dump_regions", dump_regions, METH_NOARGS, nullptr},
                  {"_outstanding", outstanding, METH_NOARGS, nullptr},
                  method("check_access", check_access,
                         "check_access(memory, size, need): what a transfer would answer now; raises it")});
}

}  // namespace hixl::python
