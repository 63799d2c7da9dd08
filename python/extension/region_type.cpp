// SPDX-License-Identifier: Apache-2.0
#include "region_type.hpp"

#include "arguments.hpp"
#include "module.hpp"

namespace hixl::python {

bool RegionBody::usable() const {
  if (!closing && !closed) return true;
  ErrorDetail detail;
  detail.stage = Stage::local_check;
  detail.address = region.address();
  detail.length = region.size;
  raise(Error(ErrorCode::stale, detail));
  return false;
}

PyObject* to_python(const Region& region, PyObject* runtime) {
  Py_INCREF(runtime);
  PyObject* self = construct<RegionBody>(types().region, region, runtime);
  if (self == nullptr) Py_DECREF(runtime);
  return self;
}

namespace {

void region_deallocate(PyObject* self) {
  PyObject* runtime = body_of<RegionBody>(self).runtime;
  destroy<RegionBody>(self);
  Py_DECREF(runtime);
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  RegionBody& body = body_of<RegionBody>(self);
  view->obj = nullptr;
  if (!body.usable()) return -1;
  if (body.region.kind == MemoryKind::hbm) {
    PyErr_SetString(PyExc_BufferError, "device memory has no address that the CPU may use; see Runtime.copy_out()");
    return -1;
  }
  if (PyBuffer_FillInfo(view, self, body.region.data, static_cast<Py_ssize_t>(body.region.size), 0, flags) != 0) {
    return -1;
  }
  ++body.views;
  return 0;
}

void release_buffer(PyObject* self, Py_buffer*) { --body_of<RegionBody>(self).views; }

PyObject* region_text(PyObject* self) {
  const RegionBody& body = body_of<RegionBody>(self);
  const std::string kind(name(body.region.kind));
  return PyUnicode_FromFormat("Region(address=%p, size=%zu, kind='%s'%s%s)", body.region.data, body.region.size,
                              kind.c_str(), body.region.window ? ", window" : "", body.closed ? ", deregistered" : "");
}

Py_ssize_t region_length(PyObject* self) { return static_cast<Py_ssize_t>(body_of<RegionBody>(self).region.size); }

template <auto Get>
PyObject* region_number(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(static_cast<unsigned long long>(Get(body_of<RegionBody>(self).region)));
}
PyObject* numa_node(PyObject* self, void*) { return PyLong_FromLong(body_of<RegionBody>(self).region.numa_node); }
PyObject* window(PyObject* self, void*) {
  return PyBool_FromLong(static_cast<long>(body_of<RegionBody>(self).region.window));
}
PyObject* closed(PyObject* self, void*) { return PyBool_FromLong(static_cast<long>(body_of<RegionBody>(self).closed)); }
PyObject* region_runtime(PyObject* self, void*) {
  PyObject* owner = body_of<RegionBody>(self).runtime;
  Py_INCREF(owner);
  return owner;
}
PyObject* region_key(PyObject* self, void*) {
  const RegionKey& k = body_of<RegionBody>(self).region.key;
  return Py_BuildValue("II", k.id, k.generation);
}

/// A part of a region with a count of views of its own: whoever lends pieces of one region out sees when one comes
/// back.
struct PartBody {
  PyObject* region = nullptr;  ///< owned; counts the part as a view
  std::size_t offset = 0;
  std::size_t size = 0;
  Py_ssize_t views = 0;
};
PyTypeObject* part_type = nullptr;

PyObject* part(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"offset", "size"};
  Values<2> v;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  RegionBody& body = body_of<RegionBody>(self);
  if (!read(v, "part", parameters, 2, 2, arguments, count, names) || !to_u64(v[0], "offset", offset) ||
      !to_u64(v[1], "size", size) || !body.usable()) {
    return nullptr;
  }
  if (offset > body.region.size || size > body.region.size - offset) {
    PyErr_SetString(PyExc_ValueError, "the part does not lie within the region");
    return nullptr;
  }
  PyObject* made = construct<PartBody>(part_type, self, offset, size);
  if (made == nullptr) return nullptr;
  Py_INCREF(self);
  ++body.views;
  return made;
}

void part_deallocate(PyObject* self) {
  PyObject* region = body_of<PartBody>(self).region;
  destroy<PartBody>(self);
  --body_of<RegionBody>(region).views;
  Py_DECREF(region);
}

int part_get_buffer(PyObject* self, Py_buffer* view, int flags) {
  PartBody& body = body_of<PartBody>(self);
  const Region& region = body_of<RegionBody>(body.region).region;
  view->obj = nullptr;
  if (region.kind == MemoryKind::hbm) {
    PyErr_SetString(PyExc_BufferError, "device memory has no address that the CPU may use; see Runtime.copy_out()");
    return -1;
  }
  if (PyBuffer_FillInfo(view, self, region.data + body.offset, static_cast<Py_ssize_t>(body.size), 0, flags) != 0) {
    return -1;
  }
  ++body.views;
  return 0;
}

void part_release_buffer(PyObject* self, Py_buffer*) { --body_of<PartBody>(self).views; }
PyObject* part_views(PyObject* self, void*) { return PyLong_FromSsize_t(body_of<PartBody>(self).views); }

bool add_part_type(PyObject* module) {
  static PyGetSetDef members[] = {{"views", part_views, nullptr, "memoryviews, arrays, ... over it", nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(part_deallocate)},
                                {Py_tp_getset, members},
                                {Py_bf_getbuffer, reinterpret_cast<void*>(part_get_buffer)},
                                {Py_bf_releasebuffer, reinterpret_cast<void*>(part_release_buffer)},
                                {0, nullptr}};
  static PyType_Spec spec = {"hixl._core.Part", sizeof(Boxed<PartBody>), 0, Py_TPFLAGS_DEFAULT, slots};
  return add_type(module, spec, "Part", part_type);
}

}  // namespace

bool add_region_type(PyObject* module) {
  static PyGetSetDef members[] = {
      {"address", region_number<[](const Region& r) { return r.address(); }>, nullptr, "of its first byte", nullptr},
      {"size", region_number<[](const Region& r) { return r.size; }>, nullptr, "bytes", nullptr},
      {"nbytes", region_number<[](const Region& r) { return r.size; }>, nullptr, "bytes", nullptr},
      {"kind", region_number<[](const Region& r) { return static_cast<unsigned>(r.kind); }>, nullptr, "hixl.MemoryKind",
       nullptr},
      {"spilled_bytes", region_number<[](const Region& r) { return r.spilled_bytes; }>, nullptr,
       "of device memory: how much lies in host memory", nullptr},
      {"page_bytes", region_number<[](const Region& r) { return r.page_bytes; }>, nullptr, "of its pages; 0: not known",
       nullptr},
      {"numa_node", numa_node, nullptr, "-1: not asked for", nullptr},
      {"window", window, nullptr, "from allocate(): peers on this host map it", nullptr},
      {"closed", closed, nullptr, "it has been deregistered", nullptr},
      {"runtime", region_runtime, nullptr, "whose it is", nullptr},
      {"key", region_key, nullptr, "(id, generation)", nullptr},
      {}};
  static PyMethodDef methods[] = {
      method("part", part, "part(offset, size): a buffer over a part of it, which counts its views"), {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(region_deallocate)},
                                {Py_tp_getset, members},
                                {Py_tp_methods, methods},
                                {Py_tp_repr, reinterpret_cast<void*>(region_text)},
                                {Py_sq_length, reinterpret_cast<void*>(region_length)},
                                {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                                {Py_tp_doc, const_cast<char*>("Memory of this rank that others may use.")},
                                {0, nullptr}};
  static PyType_Spec spec = {"hixl.Region", sizeof(Boxed<RegionBody>), 0, Py_TPFLAGS_DEFAULT, slots};
  return add_part_type(module) && add_type(module, spec, "Region", types().region);
}

}  // namespace hixl::python
