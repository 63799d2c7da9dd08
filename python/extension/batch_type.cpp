// SPDX-License-Identifier: Apache-2.0
#include "batch_type.hpp"

#include <string_view>

#include "module.hpp"

namespace hixl::python {
namespace {

PyObject* batch_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  if (PyTuple_Size(arguments) != 0) {
    PyErr_SetString(PyExc_TypeError, "Batch() takes no arguments");
    return nullptr;
  }
  return construct<BatchBody>(type);
}

bool may_change(const BatchBody& batch) {
  if (batch.posting == 0) return true;
  PyErr_SetString(PyExc_BufferError, "another thread is posting this batch");
  return false;
}

template <TransferVerb Verb>
PyObject* add(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"local", "remote", "size"};
  Values<3> v;
  BatchBody& batch = body_of<BatchBody>(self);
  BatchEntry entry;
  Local local;
  if (!read(v, Verb == TransferVerb::put ? "put" : "get", parameters, 3, 2, arguments, count, names) ||
      !may_change(batch) || !to_remote(v[1], "remote", entry.remote) ||
      !local.read(v[0], v[2], Verb == TransferVerb::get)) {
    return nullptr;
  }
  entry.verb = Verb;
  entry.local = local.data();
  entry.size = local.size();
  batch.entries.push_back(entry);
  batch.held.push_back(std::move(local));
  Py_RETURN_NONE;
}

/// Eight-byte integers of any buffer: an array of numpy or of module array.
class Offsets {
 public:
  Offsets() = default;
  Offsets(const Offsets&) = delete;
  Offsets& operator=(const Offsets&) = delete;
  ~Offsets() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  bool read(PyObject* object, const char* name) {
    if (PyLong_Check(object)) return to_u64(object, name, same_);
    if (PyObject_CheckBuffer(object) == 0) {
      PyErr_Format(PyExc_TypeError, "%s must be an array of 64-bit integers, or one int for all, not %R", name,
                   Py_TYPE(object));
      return false;
    }
    if (PyObject_GetBuffer(object, &view_, PyBUF_ND | PyBUF_FORMAT) != 0) return false;
    const std::string_view format = view_.format == nullptr ? "B" : view_.format;
    const bool integers = view_.itemsize == 8 && format.find_first_of("qQlLN") != std::string_view::npos;
    if (!integers || view_.ndim != 1) {
      PyErr_Format(PyExc_TypeError, "%s must be a one-dimensional array of 64-bit integers, not of '%s'", name,
                   format.data());
      return false;
    }
    return true;
  }
  [[nodiscard]] bool one_for_all() const noexcept { return view_.obj == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(view_.len) / 8; }
  [[nodiscard]] std::uint64_t operator[](std::size_t i) const noexcept {
    return one_for_all() ? same_ : static_cast<const std::uint64_t*>(view_.buf)[i];
  }

 private:
  Py_buffer view_{};
  std::uint64_t same_ = 0;
};

/// How many entries three columns mean; false when they differ in length.
bool common_length(const Offsets (&columns)[3], std::size_t& length) {
  bool known = false;
  for (const Offsets& column : columns) {
    if (column.one_for_all()) continue;
    if (known && column.size() != length) {
      PyErr_Format(PyExc_ValueError, "the arrays have different lengths: %zu and %zu", length, column.size());
      return false;
    }
    length = column.size();
    known = true;
  }
  if (!known) PyErr_SetString(PyExc_TypeError, "at least one of the three must be an array");
  return known;
}

/// Whether every range lies in the buffer: a negative number shows as one above 2**63, and is outside as well.
bool ranges_fit(const Offsets& offsets, const Offsets& sizes, std::size_t length, std::uint64_t limit,
                const char* whose) {
  for (std::size_t i = 0; i < length; ++i) {
    if (sizes[i] <= limit && offsets[i] <= limit - sizes[i]) continue;
    PyErr_Format(PyExc_ValueError, "entry %zu: offset %lld and size %lld do not fit into the %llu bytes of the %s", i,
                 static_cast<long long>(offsets[i]), static_cast<long long>(sizes[i]),
                 static_cast<unsigned long long>(limit), whose);
    return false;
  }
  return true;
}

template <TransferVerb Verb>
PyObject* add_many(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"local", "remote", "local_offsets", "remote_offsets", "sizes"};
  Values<5> v;
  BatchBody& batch = body_of<BatchBody>(self);
  Local local;
  Offsets columns[3];
  std::size_t length = 0;
  if (!read(v, Verb == TransferVerb::put ? "put_many" : "get_many", parameters, 5, 5, arguments, count, names) ||
      !may_change(batch)) {
    return nullptr;
  }
  if (!PyObject_TypeCheck(v[1], types().remote_region)) {
    PyErr_Format(PyExc_TypeError, "remote must be a RemoteRegion, not %R", Py_TYPE(v[1]));
    return nullptr;
  }
  const RemoteRegion& remote = body_of<RemoteRegion>(v[1]);
  if (PyLong_Check(v[0])) {
    PyErr_SetString(PyExc_TypeError, "local must be a buffer or a Region: an address has no end");
    return nullptr;
  }
  if (!local.read(v[0], nullptr, Verb == TransferVerb::get) || !columns[0].read(v[2], "local_offsets") ||
      !columns[1].read(v[3], "remote_offsets") || !columns[2].read(v[4], "sizes") || !common_length(columns, length) ||
      !ranges_fit(columns[0], columns[2], length, local.size(), "local buffer") ||
      !ranges_fit(columns[1], columns[2], length, remote.length, "remote region")) {
    return nullptr;
  }
  auto* const base = static_cast<std::byte*>(local.data());
  batch.entries.reserve(batch.entries.size() + length);
  for (std::size_t i = 0; i < length; ++i) {
    batch.entries.push_back({Verb, base + columns[0][i], remote.at(columns[1][i]), columns[2][i]});
  }
  batch.held.push_back(std::move(local));
  Py_RETURN_NONE;
}

PyObject* batch_clear(PyObject* self, PyObject*) {
  BatchBody& batch = body_of<BatchBody>(self);
  if (!may_change(batch)) return nullptr;
  batch.entries.clear();
  batch.held.clear();
  Py_RETURN_NONE;
}

Py_ssize_t batch_length(PyObject* self) { return static_cast<Py_ssize_t>(body_of<BatchBody>(self).entries.size()); }

PyObject* batch_bytes(PyObject* self, void*) {
  std::uint64_t total = 0;
  for (const BatchEntry& entry : body_of<BatchBody>(self).entries) total += entry.size;
  return PyLong_FromUnsignedLongLong(total);
}

}  // namespace

bool add_batch_type(PyObject* module) {
  static PyMethodDef methods[] = {
      method("put", add<TransferVerb::put>, "put(local, remote, size=None)"),
      method("get", add<TransferVerb::get>, "get(local, remote, size=None)"),
      method("put_many", add_many<TransferVerb::put>,
             "put_many(local, remote_region, local_offsets, remote_offsets, sizes): columns of 64-bit integers, or "
             "one int for all"),
      method("get_many", add_many<TransferVerb::get>, "get_many(...): as put_many"),
      {"clear", batch_clear, METH_NOARGS, "drops all entries"},
      {}};
  static PyGetSetDef members[] = {{"nbytes", batch_bytes, nullptr, "of all entries", nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(batch_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(destroy<BatchBody>)},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, members},
                                {Py_sq_length, reinterpret_cast<void*>(batch_length)},
                                {Py_tp_doc, const_cast<char*>("Puts and gets to one rank, posted as one operation.")},
                                {0, nullptr}};
  static PyType_Spec spec = {"hixl.Batch", sizeof(Boxed<BatchBody>), 0, Py_TPFLAGS_DEFAULT, slots};
  return add_type(module, spec, "Batch", types().batch);
}

}  // namespace hixl::python
