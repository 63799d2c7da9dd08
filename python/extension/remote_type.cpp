// SPDX-License-Identifier: Apache-2.0
#include "remote_type.hpp"

#include <tuple>

#include "arguments.hpp"
#include "module.hpp"

namespace hixl::python {

PyObject* to_python(const RemoteRegion& region) { return construct<RemoteRegion>(types().remote_region, region); }
PyObject* to_python(const RemoteAddress& address) { return construct<RemoteAddress>(types().remote_address, address); }

namespace {

auto parts_of(const RemoteRegion& r) {
  return std::tuple(r.rank, r.incarnation, r.key.id, r.key.generation, r.token.high, r.token.low, r.base, r.length,
                    static_cast<std::uint8_t>(r.rights), r.tag, static_cast<std::uint8_t>(r.kind));
}
auto parts_of(const RemoteAddress& a) {
  return std::tuple(a.rank, a.address, a.region.id, a.region.generation, a.incarnation);
}

/// The tuple that makes it again: for pickle, and for hash and ==.
PyObject* parts_tuple(const RemoteRegion& r) {
  return Py_BuildValue("IKIIKKKKIII", r.rank, r.incarnation, r.key.id, r.key.generation, r.token.high, r.token.low,
                       r.base, r.length, static_cast<unsigned>(r.rights), r.tag, static_cast<unsigned>(r.kind));
}
PyObject* parts_tuple(const RemoteAddress& a) {
  return Py_BuildValue("IKIIK", a.rank, a.address, a.region.id, a.region.generation, a.incarnation);
}

template <class Body>
PyObject* reduce(PyObject* self, PyObject*) {
  PyObject* parts = parts_tuple(body_of<Body>(self));
  return parts == nullptr ? nullptr : Py_BuildValue("ON", Py_TYPE(self), parts);
}

template <class Body>
Py_hash_t hash(PyObject* self) {
  PyObject* parts = parts_tuple(body_of<Body>(self));
  if (parts == nullptr) return -1;
  const Py_hash_t value = PyObject_Hash(parts);
  Py_DECREF(parts);
  return value;
}

template <class Body>
PyObject* compare(PyObject* self, PyObject* other, int operation) {
  if (Py_TYPE(self) != Py_TYPE(other) || (operation != Py_EQ && operation != Py_NE)) {
    Py_INCREF(Py_NotImplemented);
    return Py_NotImplemented;
  }
  const bool equal = parts_of(body_of<Body>(self)) == parts_of(body_of<Body>(other));
  return PyBool_FromLong(static_cast<long>(equal == (operation == Py_EQ)));
}

PyObject* remote_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  RemoteRegion r;
  unsigned rights = 0;
  unsigned kind = 0;
  static const char* names[] = {"rank",   "incarnation", "key_id", "key_generation", "token_high", "token_low", "base",
                                "length", "rights",      "tag",    "kind",           nullptr};
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "IKIIKKKKIII:RemoteRegion", const_cast<char**>(names), &r.rank,
                                  &r.incarnation, &r.key.id, &r.key.generation, &r.token.high, &r.token.low, &r.base,
                                  &r.length, &rights, &r.tag, &kind) == 0) {
    return nullptr;
  }
  if (rights > static_cast<unsigned>(Rights::all) || kind > static_cast<unsigned>(MemoryKind::hbm)) {
    PyErr_SetString(PyExc_ValueError, "no such rights, or no such kind of memory");
    return nullptr;
  }
  r.rights = static_cast<Rights>(rights);
  r.kind = static_cast<MemoryKind>(kind);
  return construct<RemoteRegion>(type, r);
}

PyObject* address_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  RemoteAddress a;
  static const char* names[] = {"rank", "address", "key_id", "key_generation", "incarnation", nullptr};
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "IK|IIK:RemoteAddress", const_cast<char**>(names), &a.rank,
                                  &a.address, &a.region.id, &a.region.generation, &a.incarnation) == 0) {
    return nullptr;
  }
  return construct<RemoteAddress>(type, a);
}

PyObject* remote_at(PyObject* self, PyObject* offset) {
  std::uint64_t bytes = 0;
  if (!to_u64(offset, "offset", bytes)) return nullptr;
  const RemoteRegion& region = body_of<RemoteRegion>(self);
  // What lies beyond is the library's to refuse, by the whole range; an address that wraps would be another one.
  if (bytes > region.length) {
    PyErr_Format(PyExc_ValueError, "offset is %llu, and the region of rank %u has %llu bytes",
                 static_cast<unsigned long long>(bytes), region.rank, static_cast<unsigned long long>(region.length));
    return nullptr;
  }
  return to_python(region.at(bytes));
}

PyObject* address_add(PyObject* left, PyObject* right) {
  if (!PyObject_TypeCheck(left, types().remote_address)) {
    Py_INCREF(Py_NotImplemented);
    return Py_NotImplemented;
  }
  RemoteAddress address = body_of<RemoteAddress>(left);
  std::uint64_t bytes = 0;
  if (!to_u64(right, "offset", bytes)) return nullptr;
  if (address.address + bytes < address.address) {
    PyErr_SetString(PyExc_ValueError, "the address would be above 2**64");
    return nullptr;
  }
  address.address += bytes;
  return to_python(address);
}

PyObject* remote_text(PyObject* self) {
  const RemoteRegion& r = body_of<RemoteRegion>(self);
  PyObject* base = PyLong_FromUnsignedLongLong(r.base);
  PyObject* hex = base == nullptr ? nullptr : PyNumber_ToBase(base, 16);
  PyObject* result = hex == nullptr
                         ? nullptr
                         : PyUnicode_FromFormat("RemoteRegion(rank=%u, base=%U, length=%llu, tag=%u)", r.rank, hex,
                                                static_cast<unsigned long long>(r.length), r.tag);
  Py_XDECREF(base);
  Py_XDECREF(hex);
  return result;
}

PyObject* address_text(PyObject* self) {
  const RemoteAddress& a = body_of<RemoteAddress>(self);
  PyObject* number = PyLong_FromUnsignedLongLong(a.address);
  PyObject* hex = number == nullptr ? nullptr : PyNumber_ToBase(number, 16);
  PyObject* result = hex == nullptr ? nullptr : PyUnicode_FromFormat("RemoteAddress(rank=%u, address=%U)", a.rank, hex);
  Py_XDECREF(number);
  Py_XDECREF(hex);
  return result;
}

/// A getter of one number.
template <class Body, auto Get>
PyObject* remote_number(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(static_cast<unsigned long long>(Get(body_of<Body>(self))));
}

}  // namespace

bool add_remote_types(PyObject* module) {
  using R = RemoteRegion;
  static PyGetSetDef region_members[] = {
      {"rank", remote_number<R, [](const R& r) { return r.rank; }>, nullptr, "whose memory it is", nullptr},
      {"base", remote_number<R, [](const R& r) { return r.base; }>, nullptr, "address at that rank", nullptr},
      {"length", remote_number<R, [](const R& r) { return r.length; }>, nullptr, "bytes", nullptr},
      {"tag", remote_number<R, [](const R& r) { return r.tag; }>, nullptr, "number that its owner gave it", nullptr},
      {"rights", remote_number<R, [](const R& r) { return static_cast<unsigned>(r.rights); }>, nullptr, "hixl.Rights",
       nullptr},
      {"kind", remote_number<R, [](const R& r) { return static_cast<unsigned>(r.kind); }>, nullptr, "hixl.MemoryKind",
       nullptr},
      {"incarnation", remote_number<R, [](const R& r) { return r.incarnation; }>, nullptr, "which life of the rank",
       nullptr},
      {}};
  static PyMethodDef region_methods[] = {{"at", remote_at, METH_O, "at(offset): the RemoteAddress of a byte in it"},
                                         {"__reduce__", reduce<R>, METH_NOARGS, nullptr},
                                         {}};
  static PyType_Slot region_slots[] = {{Py_tp_new, reinterpret_cast<void*>(remote_new)},
                                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy<R>)},
                                       {Py_tp_getset, region_members},
                                       {Py_tp_methods, region_methods},
                                       {Py_tp_repr, reinterpret_cast<void*>(remote_text)},
                                       {Py_tp_hash, reinterpret_cast<void*>(hash<R>)},
                                       {Py_tp_richcompare, reinterpret_cast<void*>(compare<R>)},
                                       {Py_tp_doc, const_cast<char*>("Memory of another rank, one life of it.")},
                                       {0, nullptr}};
  static PyType_Spec region_spec = {"hixl.RemoteRegion", sizeof(Boxed<R>), 0, Py_TPFLAGS_DEFAULT, region_slots};

  using A = RemoteAddress;
  static PyGetSetDef address_members[] = {
      {"rank", remote_number<A, [](const A& a) { return a.rank; }>, nullptr, "whose memory it is", nullptr},
      {"address", remote_number<A, [](const A& a) { return a.address; }>, nullptr, "at that rank", nullptr},
      {}};
  static PyMethodDef address_methods[] = {{"__reduce__", reduce<A>, METH_NOARGS, nullptr}, {}};
  static PyType_Slot address_slots[] = {{Py_tp_new, reinterpret_cast<void*>(address_new)},
                                        {Py_tp_dealloc, reinterpret_cast<void*>(destroy<A>)},
                                        {Py_tp_getset, address_members},
                                        {Py_tp_methods, address_methods},
                                        {Py_tp_repr, reinterpret_cast<void*>(address_text)},
                                        {Py_tp_hash, reinterpret_cast<void*>(hash<A>)},
                                        {Py_tp_richcompare, reinterpret_cast<void*>(compare<A>)},
                                        {Py_nb_add, reinterpret_cast<void*>(address_add)},
                                        {Py_tp_doc, const_cast<char*>("A place in another rank's memory.")},
                                        {0, nullptr}};
  static PyType_Spec address_spec = {"hixl.RemoteAddress", sizeof(Boxed<A>), 0, Py_TPFLAGS_DEFAULT, address_slots};
  return add_type(module, region_spec, "RemoteRegion", types().remote_region) &&
         add_type(module, address_spec, "RemoteAddress", types().remote_address);
}

}  // namespace hixl::python
