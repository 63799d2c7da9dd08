// SPDX-License-Identifier: Apache-2.0
#include "group_type.hpp"

#include "arguments.hpp"
#include "doorbell.hpp"
#include "module.hpp"
#include "runtime_type.hpp"

namespace hixl::python {

PyObject* to_python(Group&& group, PyObject* runtime) {
  Py_INCREF(runtime);
  PyObject* self = construct<GroupBody>(types().group, std::move(group), runtime);
  if (self == nullptr) Py_DECREF(runtime);
  return self;
}

namespace {

void group_deallocate(PyObject* self) {
  PyObject* runtime = body_of<GroupBody>(self).runtime;
  destroy<GroupBody>(self);
  Py_DECREF(runtime);
}

Group& group_of(PyObject* self) { return body_of<GroupBody>(self).group; }

PyObject* group_barrier(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"timeout"};
  Values<1> v;
  Timeout timeout{};
  if (!read(v, "barrier", parameters, 1, 0, arguments, count, names) || !to_timeout(v[0], "timeout", timeout)) {
    return nullptr;
  }
  Group& group = group_of(self);
  return none_or_raise(without_gil([&] { return group.barrier(timeout); }));
}

PyObject* group_barrier_async(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"doorbell", "ticket", "timeout"};
  Values<3> v;
  Timeout timeout{};
  if (!read(v, "_barrier_async", parameters, 3, 2, arguments, count, names) || !to_timeout(v[2], "timeout", timeout)) {
    return nullptr;
  }
  auto notice = open_notice(v[0], v[1], body_of<GroupBody>(self).runtime);
  if (notice == nullptr) return nullptr;
  const auto begun = group_of(self).barrier_async(timeout, ring_done, notice.get());
  if (!begun) {
    drop_notice(std::move(notice));
    return raise(begun.error());
  }
  static_cast<void>(notice.release());
  Py_RETURN_NONE;
}

PyObject* group_exchange(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"regions", "timeout"};
  Values<2> v;
  std::vector<Region> regions;
  Timeout timeout{};
  if (!read(v, "exchange", parameters, 2, 1, arguments, count, names) ||
      !to_own_regions(body_of<GroupBody>(self).runtime, v[0], regions) || !to_timeout(v[1], "timeout", timeout)) {
    return nullptr;
  }
  Group& group = group_of(self);
  return to_python(without_gil([&] { return group.exchange(regions, timeout); }));
}

PyObject* group_close(PyObject* self, PyObject*) {
  group_of(self).close();
  Py_RETURN_NONE;
}

PyObject* world_rank(PyObject* self, PyObject* place) {
  Rank rank = 0;
  if (!to_u32(place, "place", rank)) return nullptr;
  const Rank found = group_of(self).world_rank(rank);
  if (found == k_no_rank) {
    PyErr_Format(PyExc_IndexError, "place %u of a group of %u ranks", rank, group_of(self).size());
    return nullptr;
  }
  return PyLong_FromUnsignedLong(found);
}

PyObject* group_size(PyObject* self, void*) { return PyLong_FromUnsignedLong(group_of(self).size()); }
PyObject* group_rank(PyObject* self, void*) {
  const Rank mine = group_of(self).rank();
  if (mine != k_no_rank) return PyLong_FromUnsignedLong(mine);
  Py_RETURN_NONE;
}
PyObject* group_ranks(PyObject* self, void*) {
  const auto members = group_of(self).ranks();
  PyObject* all = PyTuple_New(static_cast<Py_ssize_t>(members.size()));
  for (std::size_t i = 0; all != nullptr && i < members.size(); ++i) {
    PyObject* one = PyLong_FromUnsignedLong(members[i]);
    if (one == nullptr) {
      Py_CLEAR(all);
    } else {
      PyTuple_SetItem(all, static_cast<Py_ssize_t>(i), one);
    }
  }
  return all;
}
PyObject* group_runtime(PyObject* self, void*) {
  PyObject* owner = body_of<GroupBody>(self).runtime;
  Py_INCREF(owner);
  return owner;
}

}  // namespace

bool add_group_type(PyObject* module) {
  static std::vector<PyMethodDef> methods;
  methods = {method("barrier", group_barrier, "barrier(timeout=None): nobody leaves before the last has entered"),
             method("_barrier_async", group_barrier_async, nullptr),
             method("exchange", group_exchange, "exchange(regions, timeout=None): with all members, in their order"),
             {"close", group_close, METH_NOARGS, "ends this rank's membership; never blocks"},
             {"world_rank", world_rank, METH_O, "world_rank(place): the rank at that place"}};
  add_group_transfer_methods(methods);
  methods.push_back({});
  static PyGetSetDef members[] = {{"size", group_size, nullptr, "members; 0: closed", nullptr},
                                  {"rank", group_rank, nullptr, "this rank's place inside the group", nullptr},
                                  {"ranks", group_ranks, nullptr, "in the order given at creation", nullptr},
                                  {"runtime", group_runtime, nullptr, "that made it", nullptr},
                                  {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(group_deallocate)},
                                {Py_tp_methods, methods.data()},
                                {Py_tp_getset, members},
                                {Py_tp_doc, const_cast<char*>("Some ranks that work together.")},
                                {0, nullptr}};
  static PyType_Spec spec = {"hixl.Group", sizeof(Boxed<GroupBody>), 0, Py_TPFLAGS_DEFAULT, slots};
  return add_type(module, spec, "Group", types().group);
}

}  // namespace hixl::python
