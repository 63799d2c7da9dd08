// SPDX-License-Identifier: Apache-2.0
//
// Transfers of a Runtime and of a Group, which have the same calls.
#include <hixl/runtime.hpp>

#include "arguments.hpp"
#include "batch_type.hpp"
#include "group_type.hpp"
#include "module.hpp"
#include "post.hpp"
#include "runtime_type.hpp"

namespace hixl::python {
namespace {

template <class Owner>
Owner& owner_of(PyObject* self) noexcept {
  if constexpr (std::is_same_v<Owner, Runtime>) {
    return *body_of<RuntimeBody>(self).runtime;
  } else {
    return body_of<GroupBody>(self).group;
  }
}

/// Not destroyed when the interpreter's end unwinds a thread out of without_gil(), where no buffer may be let go.
union HeldLocal {
  Local local;
  HeldLocal() : local() {}
  ~HeldLocal() {}
};

template <class Owner, TransferVerb Verb>
PyObject* move_bytes(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"local", "remote", "size", HIXL_POST_PARAMETERS};
  constexpr bool put = Verb == TransferVerb::put;
  Values<3 + k_post_parameters> v;
  RemoteAddress remote;
  Local local;
  Post post;
  if (!read(v, put ? "put" : "get", parameters, 3, 2, arguments, count, names) || !to_remote(v[1], "remote", remote) ||
      !local.read(v[0], v[2], !put) || (put && !is_proven(self, local)) || !post.read(&v.values[3])) {
    return nullptr;
  }
  Owner& owner = owner_of<Owner>(self);
  return post.finish(put ? owner.put(local.data(), remote, local.size(), post.options())
                         : owner.get(local.data(), remote, local.size(), post.options()));
}

template <class Owner, TransferVerb Verb>
PyObject* move_bytes_sync(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"local", "remote", "size", "timeout"};
  constexpr bool put = Verb == TransferVerb::put;
  Values<4> v;
  RemoteAddress remote;
  Timeout timeout{};
  HeldLocal held;
  Local& local = held.local;
  PyObject* answer = nullptr;
  if (read(v, put ? "put_sync" : "get_sync", parameters, 3, 2, arguments, count, names) &&
      to_remote(v[1], "remote", remote) && to_timeout(v[3], "timeout", timeout) && local.read(v[0], v[2], !put) &&
      (!put || is_proven(self, local))) {
    Owner& owner = owner_of<Owner>(self);
    answer = none_or_raise(without_gil([&] {
      return put ? owner.put_sync(local.data(), remote, local.size(), timeout)
                 : owner.get_sync(local.data(), remote, local.size(), timeout);
    }));
  }
  local.~Local();
  return answer;
}

bool to_signal(PyObject* word, PyObject* value, PyObject* operation, Signal& out) {
  static constexpr const char* k_operations[] = {"set", "add"};
  std::uint8_t number = 0;
  if (!to_remote(word, "signal", out.word) || (value != nullptr && !to_u64(value, "value", out.value)) ||
      (operation != nullptr && !to_choice(operation, "op", k_operations, 2, number))) {
    return false;
  }
  out.op = static_cast<SignalOp>(number);
  return true;
}

template <class Owner>
PyObject* put_with_signal(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {
      "local", "remote", "signal", "value", "op", "size", HIXL_POST_PARAMETERS};
  Values<6 + k_post_parameters> v;
  RemoteAddress remote;
  Local local;
  Signal signal;
  Post post;
  if (!read(v, "put_with_signal", parameters, 3, 3, arguments, count, names) || !to_remote(v[1], "remote", remote) ||
      !to_signal(v[2], v[3], v[4], signal) || !local.read(v[0], v[5], false) || !is_proven(self, local) ||
      !post.read(&v.values[6])) {
    return nullptr;
  }
  return post.finish(owner_of<Owner>(self).put_with_signal(local.data(), remote, local.size(), signal, post.options()));
}

bool to_batch(PyObject* value, BatchBody*& out) {
  if (!PyObject_TypeCheck(value, types().batch)) {
    PyErr_Format(PyExc_TypeError, "batch must be a hixl.Batch, not %R", Py_TYPE(value));
    return false;
  }
  out = &body_of<BatchBody>(value);
  return true;
}

template <class Owner>
PyObject* post_batch(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"batch", HIXL_POST_PARAMETERS};
  Values<1 + k_post_parameters> v;
  BatchBody* batch = nullptr;
  Post post;
  if (!read(v, "batch", parameters, 1, 1, arguments, count, names) || !to_batch(v[0], batch) ||
      !post.read(&v.values[1])) {
    return nullptr;
  }
  return post.finish(owner_of<Owner>(self).batch(batch->entries, post.options()));
}

PyObject* batch_sync(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"batch", "timeout"};
  Values<2> v;
  BatchBody* batch = nullptr;
  Timeout timeout{};
  if (!read(v, "batch_sync", parameters, 1, 1, arguments, count, names) || !to_batch(v[0], batch) ||
      !to_timeout(v[1], "timeout", timeout)) {
    return nullptr;
  }
  Runtime& runtime = runtime_of(self);
  ++batch->posting;
  const Result<void> result = without_gil([&] { return runtime.batch_sync(batch->entries, timeout); });
  --batch->posting;
  return none_or_raise(result);
}

template <class Owner>
PyObject* batch_with_signal(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"batch", "signal", "value", "op", HIXL_POST_PARAMETERS};
  Values<4 + k_post_parameters> v;
  BatchBody* batch = nullptr;
  Signal signal;
  Post post;
  if (!read(v, "batch_with_signal", parameters, 2, 2, arguments, count, names) || !to_batch(v[0], batch) ||
      !to_signal(v[1], v[2], v[3], signal) || !post.read(&v.values[4])) {
    return nullptr;
  }
  return post.finish(owner_of<Owner>(self).batch_with_signal(batch->entries, signal, post.options()));
}

bool to_pieces(PyObject* value, bool writable, std::vector<Local>& held, std::vector<LocalPiece>& pieces) {
  PyObject* list = PyUnicode_Check(value) || PyBytes_Check(value) ? nullptr : PySequence_List(value);
  if (list == nullptr) {
    PyErr_Format(PyExc_TypeError, "pieces must be several buffers (a list, a tuple, ...), not %R", Py_TYPE(value));
    return false;
  }
  bool good = true;
  for (Py_ssize_t i = 0; good && i < PyList_Size(list); ++i) {
    Local local;
    good = local.read(PyList_GetItem(list, i), nullptr, writable);
    if (!good) continue;
    pieces.push_back({local.data(), local.size()});
    held.push_back(std::move(local));
  }
  Py_DECREF(list);
  return good;
}

template <class Owner, TransferVerb Verb>
PyObject* move_pieces(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"pieces", "remote", HIXL_POST_PARAMETERS};
  constexpr bool put = Verb == TransferVerb::put;
  Values<2 + k_post_parameters> v;
  RemoteAddress remote;
  std::vector<Local> held;
  std::vector<LocalPiece> pieces;
  Post post;
  if (!read(v, put ? "put_gathered" : "get_scattered", parameters, 2, 2, arguments, count, names) ||
      !to_remote(v[1], "remote", remote) || !to_pieces(v[0], !put, held, pieces) || !post.read(&v.values[2])) {
    return nullptr;
  }
  Owner& owner = owner_of<Owner>(self);
  return post.finish(put ? owner.put_gathered(pieces, remote, post.options())
                         : owner.get_scattered(pieces, remote, post.options()));
}

/// The library checks the whole range, from the first block to the last, against one region each; here only that the
/// local buffer that was named holds it.
bool to_strided(const Values<6 + k_post_parameters>& v, bool put, Local& local, Strided& out) {
  if (!to_remote(v[1], "remote", out.remote) || !local.read(v[0], PyLong_Check(v[0]) ? v[2] : nullptr, !put) ||
      !to_u64(v[2], "block_bytes", out.block_bytes) || !to_u64(v[3], "blocks", out.blocks) ||
      !to_u64(v[4], "local_stride", out.local_stride) || !to_u64(v[5], "remote_stride", out.remote_stride)) {
    return false;
  }
  out.local = local.data();
  if (local.unproven() || out.blocks == 0 || out.block_bytes == 0) return true;
  const std::uint64_t room = local.size();
  if (out.block_bytes <= room &&
      (out.blocks == 1 || out.local_stride == 0 || out.blocks - 1 <= (room - out.block_bytes) / out.local_stride)) {
    return true;
  }
  PyErr_Format(PyExc_ValueError, "the blocks do not fit into the %llu bytes of the local buffer",
               static_cast<unsigned long long>(room));
  return false;
}

template <class Owner, TransferVerb Verb>
PyObject* move_strided(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"local",        "remote",        "block_bytes",       "blocks",
                                               "local_stride", "remote_stride", HIXL_POST_PARAMETERS};
  constexpr bool put = Verb == TransferVerb::put;
  Values<6 + k_post_parameters> v;
  Strided strided;
  Local local;
  Post post;
  if (!read(v, put ? "put_strided" : "get_strided", parameters, 2, 6, arguments, count, names) ||
      !to_strided(v, put, local, strided) || !post.read(&v.values[6])) {
    return nullptr;
  }
  Owner& owner = owner_of<Owner>(self);
  return post.finish(put ? owner.put_strided(strided, post.options()) : owner.get_strided(strided, post.options()));
}

template <class Owner>
PyObject* flush(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"rank", "timeout"};
  Values<2> v;
  Rank rank = 0;
  Timeout timeout{};
  if (!read(v, "flush", parameters, 2, 1, arguments, count, names) || !to_u32(v[0], "rank", rank) ||
      !to_timeout(v[1], "timeout", timeout)) {
    return nullptr;
  }
  Owner& owner = owner_of<Owner>(self);
  return none_or_raise(without_gil([&] { return owner.flush(rank, timeout); }));
}

template <class Owner, bool Fence>
PyObject* order(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"rank", HIXL_POST_PARAMETERS};
  Values<1 + k_post_parameters> v;
  Rank rank = 0;
  Post post;
  if (!read(v, Fence ? "fence" : "flush_async", parameters, 1, 1, arguments, count, names) ||
      !to_u32(v[0], "rank", rank) || !post.read(&v.values[1])) {
    return nullptr;
  }
  Owner& owner = owner_of<Owner>(self);
  return post.finish(Fence ? owner.fence(rank, post.options()) : owner.flush_async(rank, post.options()));
}

template <class Owner>
void add_methods(std::vector<PyMethodDef>& methods) {
  constexpr TransferVerb put = TransferVerb::put;
  constexpr TransferVerb get = TransferVerb::get;
  methods.insert(
      methods.end(),
      {method("put", move_bytes<Owner, put>, "put(local, remote, size=None, **post): posts; gives a Request"),
       method("get", move_bytes<Owner, get>, "get(local, remote, size=None, **post): posts; gives a Request"),
       method("put_sync", move_bytes_sync<Owner, put>, "put_sync(local, remote, size=None, timeout=None)"),
       method("get_sync", move_bytes_sync<Owner, get>, "get_sync(local, remote, size=None, timeout=None)"),
       method("put_with_signal", put_with_signal<Owner>,
              "put_with_signal(local, remote, signal, *, value=1, op='set', size=None, **post)"),
       method("batch", post_batch<Owner>, "batch(batch, **post): posts; gives a Request"),
       method("batch_with_signal", batch_with_signal<Owner>,
              "batch_with_signal(batch, signal, *, value=1, op='set', **post)"),
       method("put_gathered", move_pieces<Owner, put>, "put_gathered(pieces, remote, **post)"),
       method("get_scattered", move_pieces<Owner, get>, "get_scattered(pieces, remote, **post)"),
       method("put_strided", move_strided<Owner, put>,
              "put_strided(local, remote, *, block_bytes, blocks, local_stride, remote_stride, **post)"),
       method("get_strided", move_strided<Owner, get>, "get_strided(...): as put_strided"),
       method("flush", flush<Owner>, "flush(rank, timeout=None): until what was posted to it before has ended"),
       method("flush_async", order<Owner, false>, "flush_async(rank, **post)"),
       method("fence", order<Owner, true>, "fence(rank, **post): what is posted later begins later")});
}

}  // namespace

void add_transfer_methods(std::vector<PyMethodDef>& methods) {
  add_methods<Runtime>(methods);
  methods.push_back(method("batch_sync", batch_sync, "batch_sync(batch, timeout=None)"));
}
void add_group_transfer_methods(std::vector<PyMethodDef>& methods) { add_methods<Group>(methods); }

}  // namespace hixl::python
