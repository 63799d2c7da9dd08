// SPDX-License-Identifier: Apache-2.0
//
// DataDist: its caches, its links and its role.
#include <limits>

#include "arguments.hpp"
#include "kv_types.hpp"
#include "module.hpp"
#include "region_type.hpp"
#include "runtime_type.hpp"

namespace hixl::python {

kv::DataDist& dist_of(PyObject* self) noexcept { return *body_of<DataDistBody>(self).dist; }

namespace {

/// Exactly `Count` numbers of any sequence.
template <class Number, std::size_t Count>
bool to_numbers(PyObject* value, const char* name, std::array<Number, Count>& out) {
  PyObject* list = PyUnicode_Check(value) || PyBytes_Check(value) ? nullptr : PySequence_List(value);
  bool good = list != nullptr && PyList_Size(list) == static_cast<Py_ssize_t>(Count);
  if (!good) PyErr_Format(PyExc_TypeError, "%s must be %zu integers, not %R", name, Count, value);
  for (std::size_t i = 0; good && i < Count; ++i) {
    std::uint64_t wide = 0;
    good =
        to_u64_up_to(PyList_GetItem(list, static_cast<Py_ssize_t>(i)), name, std::numeric_limits<Number>::max(), wide);
    out[i] = static_cast<Number>(wide);
  }
  Py_XDECREF(list);
  return good;
}

bool to_key(PyObject* value, kv::CacheKey& out) {
  std::array<std::uint64_t, 2> numbers{};
  if (!to_numbers(value, "key", numbers)) return false;
  out = {.model = numbers[0], .name = numbers[1]};
  return true;
}

/// In the order of hixl.kv.Layout.
bool to_layout(PyObject* value, kv::Layout& out) {
  std::array<std::uint32_t, 7> n{};
  if (!to_numbers(value, "layout", n)) return false;
  if (n[5] > 3 || n[6] > 1) {
    PyErr_SetString(PyExc_ValueError, n[5] > 3 ? "form must be 0 ... 3" : "order must be 0 or 1");
    return false;
  }
  out = {.form = static_cast<kv::Form>(n[5]),
         .order = static_cast<kv::Order>(n[6]),
         .dtype_bytes = n[4],
         .layers = n[0],
         .kv_heads = n[1],
         .head_dim = n[2],
         .block_tokens = n[3]};
  return true;
}

bool to_shard(PyObject* value, kv::Shard& out) {
  std::array<std::uint32_t, 4> n{};
  if (!to_numbers(value, "shard", n)) return false;
  out = {.layers_first = n[0], .layers_total = n[1], .heads_first = n[2], .heads_total = n[3]};
  return true;
}

/// (Region, offset) of each tensor, or of the place from which all follow each other.
bool to_places(PyObject* runtime, PyObject* value, std::vector<kv::TensorPlace>& out) {
  PyObject* list = PySequence_List(value);
  if (list == nullptr) return false;
  bool good = true;
  for (Py_ssize_t i = 0; good && i < PyList_Size(list); ++i) {
    PyObject* place = PyList_GetItem(list, i);
    PyObject* region = nullptr;
    PyObject* offset = nullptr;
    kv::TensorPlace one;
    if (PyTuple_Check(place) == 0) {
      PyErr_Format(PyExc_TypeError, "a tensor must be (Region, offset), not %R", Py_TYPE(place));
      good = false;
      continue;
    }
    good = PyArg_ParseTuple(place, "OO;a tensor must be (Region, offset)", &region, &offset) != 0 &&
           owns_region(runtime, region) && body_of<RegionBody>(region).usable() && to_u64(offset, "offset", one.offset);
    if (!good) continue;
    one.region = body_of<RegionBody>(region).region;
    out.push_back(one);
  }
  Py_DECREF(list);
  return good;
}

bool to_role(PyObject* value, kv::Role& out) {
  std::uint64_t number = 0;
  if (!to_u64(value, "role", number)) return false;
  if (number < 1 || number > 3) {
    PyErr_Format(PyExc_ValueError, "role is %R; it must be 1 (prefill), 2 (decode) or 3 (both)", value);
    return false;
  }
  out = static_cast<kv::Role>(number);
  return true;
}

/// DataDist(runtime, role=3, caches_max=32, tensors_max=512, links_max=64)
PyObject* dist_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"runtime", "role", "caches_max", "tensors_max", "links_max", nullptr};
  PyObject* runtime = nullptr;
  PyObject* given[4] = {};
  kv::DataDistOptions options;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O!|OOOO:DataDist", const_cast<char**>(names), types().runtime,
                                  &runtime, &given[0], &given[1], &given[2], &given[3]) == 0 ||
      (given[0] != nullptr && !to_role(given[0], options.role)) ||
      (given[1] != nullptr && !to_u32(given[1], "caches_max", options.caches_max)) ||
      (given[2] != nullptr && !to_u32(given[2], "tensors_max", options.tensors_max)) ||
      (given[3] != nullptr && !to_u32(given[3], "links_max", options.links_max))) {
    return nullptr;
  }
  Runtime& rank = runtime_of(runtime);
  auto dist = without_gil([&] { return kv::DataDist::open(rank, options); });
  if (!dist) return raise(dist.error());
  Py_INCREF(runtime);
  PyObject* self = construct<DataDistBody>(type, std::move(*dist), runtime);
  if (self == nullptr) Py_DECREF(runtime);
  return self;
}

/// Ends it if the program has not: as C++ does it, at most 5 s. The runtime goes after it.
void dist_deallocate(PyObject* self) {
  DataDistBody& body = body_of<DataDistBody>(self);
  PyObject* runtime = body.runtime;
  std::unique_ptr<kv::DataDist> dist = std::move(body.dist);
  without_gil([&] {
    dist.reset();
    return 0;
  });
  destroy<DataDistBody>(self);
  Py_DECREF(runtime);
}

PyObject* dist_close(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"timeout"};
  Values<1> v;
  Timeout timeout{};
  if (!read(v, "close", parameters, 1, 0, arguments, count, names) || !to_timeout(v[0], "timeout", timeout)) {
    return nullptr;
  }
  if (!v.given(0)) timeout = std::chrono::seconds(5);
  kv::DataDist& dist = dist_of(self);
  return none_or_raise(without_gil([&] { return dist.close(timeout); }));
}

PyObject* register_cache(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"key", "layout", "blocks", "tensors", "shard", "timeout"};
  Values<6> v;
  kv::CacheDesc desc;
  std::vector<kv::TensorPlace> places;
  Timeout timeout{};
  if (!read(v, "register_cache", parameters, 6, 4, arguments, count, names) || !to_key(v[0], desc.key) ||
      !to_layout(v[1], desc.layout) || !to_u32(v[2], "blocks", desc.blocks) ||
      !to_places(body_of<DataDistBody>(self).runtime, v[3], places) || (v.given(4) && !to_shard(v[4], desc.shard)) ||
      !to_timeout(v[5], "timeout", timeout)) {
    return nullptr;
  }
  kv::DataDist& dist = dist_of(self);
  const auto id = without_gil([&] { return dist.register_cache(desc, places, timeout); });
  return id ? Py_BuildValue("IK", id->slot, id->version) : raise(id.error());
}

PyObject* unregister_cache(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"cache", "timeout"};
  Values<2> v;
  kv::CacheId id;
  Timeout timeout{};
  if (!read(v, "unregister_cache", parameters, 2, 1, arguments, count, names) || !to_cache_id(v[0], id) ||
      !to_timeout(v[1], "timeout", timeout)) {
    return nullptr;
  }
  kv::DataDist& dist = dist_of(self);
  return none_or_raise(without_gil([&] { return dist.unregister_cache(id, timeout); }));
}

PyObject* link(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"ranks", "timeout"};
  Values<2> v;
  std::vector<Rank> ranks;
  Timeout timeout{};
  if (!read(v, "link", parameters, 2, 1, arguments, count, names) || !to_ranks(v[0], "ranks", ranks) ||
      !to_timeout(v[1], "timeout", timeout)) {
    return nullptr;
  }
  kv::DataDist& dist = dist_of(self);
  const auto answers = without_gil([&] { return dist.link(ranks, timeout); });
  PyObject* list = PyList_New(0);
  for (const Result<void>& answer : answers) {
    PyObject* one = list == nullptr ? nullptr : none_or_exception(answer);
    if (one == nullptr || PyList_Append(list, one) != 0) Py_CLEAR(list);
    Py_XDECREF(one);
  }
  return list;
}

PyObject* unlink_rank(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"rank", "timeout"};
  Values<2> v;
  Rank rank = 0;
  Timeout timeout{};
  if (!read(v, "unlink", parameters, 2, 1, arguments, count, names) || !to_u32(v[0], "rank", rank) ||
      !to_timeout(v[1], "timeout", timeout)) {
    return nullptr;
  }
  kv::DataDist& dist = dist_of(self);
  return none_or_raise(without_gil([&] { return dist.unlink(rank, timeout); }));
}

PyObject* link_state(PyObject* self, PyObject* number) {
  Rank rank = 0;
  if (!to_u32(number, "rank", rank)) return nullptr;
  return PyLong_FromUnsignedLong(static_cast<unsigned long>(dist_of(self).link_state(rank)));
}

PyObject* switch_role(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"role", "timeout"};
  Values<2> v;
  kv::Role role{};
  Timeout timeout{};
  if (!read(v, "switch_role", parameters, 2, 1, arguments, count, names) || !to_role(v[0], role) ||
      !to_timeout(v[1], "timeout", timeout)) {
    return nullptr;
  }
  kv::DataDist& dist = dist_of(self);
  return none_or_raise(without_gil([&] { return dist.switch_role(role, timeout); }));
}

PyObject* find_cache(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"rank", "key", "timeout"};
  Values<3> v;
  Rank rank = 0;
  kv::CacheKey key;
  Timeout timeout{};
  if (!read(v, "find", parameters, 3, 2, arguments, count, names) || !to_u32(v[0], "rank", rank) ||
      !to_key(v[1], key) || !to_timeout(v[2], "timeout", timeout)) {
    return nullptr;
  }
  kv::DataDist& dist = dist_of(self);
  const auto found = without_gil([&] { return dist.find(rank, key, timeout); });
  return found ? to_python(*found) : raise(found.error());
}

PyObject* dist_role(PyObject* self, void*) {
  return PyLong_FromUnsignedLong(static_cast<unsigned long>(dist_of(self).role()));
}
PyObject* dist_runtime(PyObject* self, void*) {
  PyObject* owner = body_of<DataDistBody>(self).runtime;
  Py_INCREF(owner);
  return owner;
}

}  // namespace

bool to_cache_id(PyObject* value, kv::CacheId& out) {
  std::array<std::uint64_t, 2> numbers{};
  if (!to_numbers(value, "cache", numbers)) return false;
  if (numbers[0] > std::numeric_limits<std::uint32_t>::max()) {
    PyErr_SetString(PyExc_ValueError, "cache must be what register_cache() gave");
    return false;
  }
  out = {.slot = static_cast<std::uint32_t>(numbers[0]), .version = numbers[1]};
  return true;
}

bool add_kv_types(PyObject* module) {
  static std::vector<PyMethodDef> methods;
  methods = {method("register_cache", register_cache,
                    "register_cache(key, layout, blocks, tensors, shard=None, timeout=None): its id"),
             method("unregister_cache", unregister_cache,
                    "unregister_cache(cache, timeout=None): afterwards nobody touches it by this registration"),
             method("link", link, "link(ranks, timeout=None): of each rank None, or what failed; both sides call it"),
             method("unlink", unlink_rank, "unlink(rank, timeout=None)"),
             {"link_state", link_state, METH_O, "link_state(rank): hixl.kv.LinkState"},
             method("switch_role", switch_role, "switch_role(role, timeout=None)"),
             method("find", find_cache, "find(rank, key, timeout=None): a RemoteCache"),
             method("close", dist_close, "close(timeout=5): ends transfers, and returns when nobody touches anything")};
  add_kv_move_methods(methods);
  methods.push_back({});
  static PyGetSetDef members[] = {{"role", dist_role, nullptr, "hixl.kv.Role", nullptr},
                                  {"runtime", dist_runtime, nullptr, "on which it stands", nullptr},
                                  {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(dist_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(dist_deallocate)},
                                {Py_tp_methods, methods.data()},
                                {Py_tp_getset, members},
                                {Py_tp_doc, const_cast<char*>("KV caches between ranks; one to a Runtime.")},
                                {0, nullptr}};
  static PyType_Spec spec = {"hixl._core.DataDist", sizeof(Boxed<DataDistBody>), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  static PyTypeObject* type = nullptr;
  return add_kv_move_types(module) && add_type(module, spec, "DataDist", type);
}

}  // namespace hixl::python
