// SPDX-License-Identifier: Apache-2.0
//
// What a DataDist moves: push and pull, the remote caches that they name, and the transfers that they begin.
#include "arguments.hpp"
#include "kv_types.hpp"
#include "module.hpp"

namespace hixl::python {
namespace {

PyTypeObject* remote_cache_type = nullptr;
PyTypeObject* transfer_type = nullptr;

bool to_blocks(PyObject* value, const char* name, std::vector<std::uint32_t>& out) {
  PyObject* list = PyUnicode_Check(value) || PyBytes_Check(value) ? nullptr : PySequence_List(value);
  if (list == nullptr) {
    PyErr_Format(PyExc_TypeError, "%s must be several blocks (a list, an array, ...), not %R", name, Py_TYPE(value));
    return false;
  }
  bool good = true;
  for (Py_ssize_t i = 0; good && i < PyList_Size(list); ++i) {
    std::uint32_t block = 0;
    good = to_u32(PyList_GetItem(list, i), name, block);
    out.push_back(block);
  }
  Py_DECREF(list);
  return good;
}

/// (first, last), and None for all of them.
bool to_range(PyObject* value, const char* name, std::optional<kv::Range>& out) {
  if (value == nullptr || value == Py_None) return true;
  std::vector<std::uint32_t> ends;
  if (!to_blocks(value, name, ends)) return false;
  if (ends.size() != 2) {
    PyErr_Format(PyExc_ValueError, "%s must be (first, last), up to and without the last", name);
    return false;
  }
  out = kv::Range{ends[0], ends[1]};
  return true;
}

template <bool Push>
PyObject* move(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"cache", "remote",       "source",  "target",  "tokens",  "layers",
                                               "heads", "target_layer", "timeout", "layered", "sequence"};
  Values<11> v;
  kv::CacheId cache;
  std::vector<std::uint32_t> source;
  std::vector<std::uint32_t> target;
  kv::Slice slice;
  kv::TransferOptions options;
  std::uint32_t target_layer = 0;
  if (!read(v, Push ? "push" : "pull", parameters, 4, 4, arguments, count, names) || !to_cache_id(v[0], cache)) {
    return nullptr;
  }
  if (!PyObject_TypeCheck(v[1], remote_cache_type)) {
    PyErr_Format(PyExc_TypeError, "remote must be a RemoteCache, not %R", Py_TYPE(v[1]));
    return nullptr;
  }
  if (!to_blocks(v[2], "source", source) || !to_blocks(v[3], "target", target) ||
      !to_range(v[4], "tokens", slice.tokens) || !to_range(v[5], "layers", slice.layers) ||
      !to_range(v[6], "heads", slice.heads) || (v.given(7) && !to_u32(v[7], "target_layer", target_layer)) ||
      !to_timeout(v[8], "timeout", options.timeout) || (v.given(9) && !to_bool(v[9], "layered", options.layered)) ||
      (v.given(10) && !to_u64(v[10], "sequence", options.sequence))) {
    return nullptr;
  }
  slice.source = source;
  slice.target = target;
  if (v.given(7)) slice.target_layer = target_layer;
  kv::DataDist& dist = dist_of(self);
  const auto& remote = body_of<kv::RemoteCache>(v[1]);
  auto begun = Push ? dist.push(cache, remote, slice, options) : dist.pull(cache, remote, slice, options);
  return begun ? construct<kv::Transfer>(transfer_type, std::move(*begun)) : raise(begun.error());
}

PyObject* rewind_sequence(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"sequence", "tokens"};
  Values<2> v;
  std::uint64_t sequence = 0;
  std::uint32_t tokens = 0;
  if (!read(v, "rewind", parameters, 2, 2, arguments, count, names) || !to_u64(v[0], "sequence", sequence) ||
      !to_u32(v[1], "tokens", tokens)) {
    return nullptr;
  }
  dist_of(self).rewind(sequence, tokens);
  Py_RETURN_NONE;
}

// ---- RemoteCache ----

PyObject* remote_rank(PyObject* self, void*) { return PyLong_FromUnsignedLong(body_of<kv::RemoteCache>(self).rank()); }
PyObject* remote_version(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(body_of<kv::RemoteCache>(self).version());
}
PyObject* remote_blocks(PyObject* self, void*) {
  return PyLong_FromUnsignedLong(body_of<kv::RemoteCache>(self).desc().blocks);
}
/// In the order of hixl.kv.Layout.
PyObject* remote_layout(PyObject* self, void*) {
  const kv::Layout& layout = body_of<kv::RemoteCache>(self).desc().layout;
  return Py_BuildValue("IIIIIII", layout.layers, layout.kv_heads, layout.head_dim, layout.block_tokens,
                       layout.dtype_bytes, static_cast<unsigned>(layout.form), static_cast<unsigned>(layout.order));
}

// ---- Transfer ----

PyObject* transfer_query(PyObject* self, PyObject*) { return none_or_raise(body_of<kv::Transfer>(self).query()); }

PyObject* transfer_done(PyObject* self, PyObject*) {
  const Result<void> now = body_of<kv::Transfer>(self).query();
  return PyBool_FromLong(static_cast<long>(now || now.error().code != ErrorCode::busy));
}

PyObject* transfer_wait(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"timeout"};
  Values<1> v;
  Timeout timeout{};
  if (!read(v, "wait", parameters, 1, 0, arguments, count, names) || !to_timeout(v[0], "timeout", timeout)) {
    return nullptr;
  }
  const kv::Transfer& transfer = body_of<kv::Transfer>(self);
  return none_or_raise(without_gil([&] { return transfer.wait(timeout); }));
}

PyObject* transfer_ready(PyObject* self, PyObject* number) {
  std::uint32_t layer = 0;
  if (!to_u32(number, "layer", layer)) return nullptr;
  return none_or_raise(body_of<kv::Transfer>(self).ready(layer));
}

PyObject* transfer_cancel(PyObject* self, PyObject*) {
  body_of<kv::Transfer>(self).cancel();
  Py_RETURN_NONE;
}

PyObject* transfer_progress(PyObject* self, PyObject*) {
  const kv::Progress now = body_of<kv::Transfer>(self).progress();
  return Py_BuildValue("KKII", now.bytes_total, now.bytes_done, now.layers_total, now.layers_done);
}

}  // namespace

PyObject* to_python(const kv::RemoteCache& cache) { return construct<kv::RemoteCache>(remote_cache_type, cache); }

void add_kv_move_methods(std::vector<PyMethodDef>& methods) {
  methods.insert(methods.end(),
                 {method("push", move<true>,
                         "push(cache, remote, source, target, *, tokens=None, layers=None, heads=None, "
                         "target_layer=None, timeout=None, layered=False, sequence=0): a Transfer"),
                  method("pull", move<false>, "pull(cache, remote, source, target, ...): as push, the other way"),
                  method("rewind", rewind_sequence, "rewind(sequence, tokens): what comes after them moves again")});
}

bool add_kv_move_types(PyObject* module) {
  static PyGetSetDef of_remote[] = {{"rank", remote_rank, nullptr, "whose it is", nullptr},
                                    {"version", remote_version, nullptr, "of this registration", nullptr},
                                    {"blocks", remote_blocks, nullptr, "of each tensor", nullptr},
                                    {"layout", remote_layout, nullptr, "as hixl.kv.Layout", nullptr},
                                    {}};
  static PyType_Slot remote_slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
      {Py_tp_dealloc, reinterpret_cast<void*>(destroy<kv::RemoteCache>)},
      {Py_tp_getset, of_remote},
      {Py_tp_doc, const_cast<char*>("One registration of a cache of another rank, as find() saw it.")},
      {0, nullptr}};
  static PyType_Spec remote_spec = {"hixl._core.RemoteCache", sizeof(Boxed<kv::RemoteCache>), 0, Py_TPFLAGS_DEFAULT,
                                    remote_slots};
  static PyMethodDef of_transfer[] = {
      {"done", transfer_done, METH_NOARGS, "True when it has ended"},
      {"query", transfer_query, METH_NOARGS, "None for success; raises BUSY while it is under way, else what failed"},
      method("wait", transfer_wait, "wait(timeout=None): until the end; raises what failed"),
      {"ready", transfer_ready, METH_O, "ready(layer): of a layered one, this layer may move"},
      {"cancel", transfer_cancel, METH_NOARGS, "it ends soon"},
      {"progress", transfer_progress, METH_NOARGS, "(bytes_total, bytes_done, layers_total, layers_done)"},
      {}};
  static PyType_Slot transfer_slots[] = {{Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                                         {Py_tp_dealloc, reinterpret_cast<void*>(destroy<kv::Transfer>)},
                                         {Py_tp_methods, of_transfer},
                                         {Py_tp_doc, const_cast<char*>("One push or pull.")},
                                         {0, nullptr}};
  static PyType_Spec transfer_spec = {"hixl._core.Transfer", sizeof(Boxed<kv::Transfer>), 0, Py_TPFLAGS_DEFAULT,
                                      transfer_slots};
  return add_type(module, remote_spec, "RemoteCache", remote_cache_type) &&
         add_type(module, transfer_spec, "Transfer", transfer_type);
}

}  // namespace hixl::python
