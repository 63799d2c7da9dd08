// SPDX-License-Identifier: Apache-2.0
//
// Atomics, and waiting for a signal word.
#include "arguments.hpp"
#include "module.hpp"
#include "post.hpp"
#include "runtime_type.hpp"

namespace hixl::python {
namespace {

enum class Atomic { add, fetch_add, swap, compare_swap };

constexpr const char* name_of(Atomic what, bool sync) {
  switch (what) {
    case Atomic::add:
      return sync ? "atomic_add_sync" : "atomic_add";
    case Atomic::fetch_add:
      return sync ? "fetch_add_sync" : "fetch_add";
    case Atomic::swap:
      return sync ? "swap_sync" : "swap";
    case Atomic::compare_swap:
      return sync ? "compare_swap_sync" : "compare_swap";
  }
  return "";
}

template <Atomic What>
PyObject* post_atomic(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"at", "value", HIXL_POST_PARAMETERS};
  Values<2 + k_post_parameters> v;
  RemoteAddress at;
  std::uint64_t value = 0;
  Post post;
  if (!read(v, name_of(What, false), parameters, 2, 2, arguments, count, names) || !to_remote(v[0], "at", at) ||
      !to_u64(v[1], "value", value) || !post.read(&v.values[2])) {
    return nullptr;
  }
  Runtime& runtime = runtime_of(self);
  if constexpr (What == Atomic::add) return post.finish(runtime.atomic_add(at, value, post.options()));
  if constexpr (What == Atomic::fetch_add) return post.finish(runtime.fetch_add(at, value, post.options()));
  return post.finish(runtime.swap(at, value, post.options()));
}

PyObject* compare_swap(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"at", "expected", "desired", HIXL_POST_PARAMETERS};
  Values<3 + k_post_parameters> v;
  RemoteAddress at;
  std::uint64_t expected = 0;
  std::uint64_t desired = 0;
  Post post;
  if (!read(v, "compare_swap", parameters, 3, 3, arguments, count, names) || !to_remote(v[0], "at", at) ||
      !to_u64(v[1], "expected", expected) || !to_u64(v[2], "desired", desired) || !post.read(&v.values[3])) {
    return nullptr;
  }
  return post.finish(runtime_of(self).compare_swap(at, expected, desired, post.options()));
}

PyObject* word_or_raise(const Result<std::uint64_t>& word) {
  return word ? PyLong_FromUnsignedLongLong(*word) : raise(word.error());
}

template <Atomic What>
PyObject* atomic_sync(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"at", "value", "timeout"};
  Values<3> v;
  RemoteAddress at;
  std::uint64_t value = 0;
  Timeout timeout{};
  if (!read(v, name_of(What, true), parameters, 3, 2, arguments, count, names) || !to_remote(v[0], "at", at) ||
      !to_u64(v[1], "value", value) || !to_timeout(v[2], "timeout", timeout)) {
    return nullptr;
  }
  Runtime& runtime = runtime_of(self);
  if constexpr (What == Atomic::add) {
    return none_or_raise(without_gil([&] { return runtime.atomic_add_sync(at, value, timeout); }));
  } else if constexpr (What == Atomic::fetch_add) {
    return word_or_raise(without_gil([&] { return runtime.fetch_add_sync(at, value, timeout); }));
  } else {
    return word_or_raise(without_gil([&] { return runtime.swap_sync(at, value, timeout); }));
  }
}

PyObject* compare_swap_sync(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"at", "expected", "desired", "timeout"};
  Values<4> v;
  RemoteAddress at;
  std::uint64_t expected = 0;
  std::uint64_t desired = 0;
  Timeout timeout{};
  if (!read(v, "compare_swap_sync", parameters, 4, 3, arguments, count, names) || !to_remote(v[0], "at", at) ||
      !to_u64(v[1], "expected", expected) || !to_u64(v[2], "desired", desired) ||
      !to_timeout(v[3], "timeout", timeout)) {
    return nullptr;
  }
  Runtime& runtime = runtime_of(self);
  return word_or_raise(without_gil([&] { return runtime.compare_swap_sync(at, expected, desired, timeout); }));
}

/// wait_signal(local, value, *, offset=0, compare='==', timeout=None)
PyObject* wait_signal(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"local", "value", "offset", "compare", "timeout"};
  static constexpr const char* k_comparisons[] = {"==", "!=", ">="};
  Values<5> v;
  std::uint64_t value = 0;
  std::uint64_t offset = 0;
  std::uint8_t compare = 0;
  Timeout timeout{};
  if (!read(v, "wait_signal", parameters, 2, 2, arguments, count, names) || !to_u64(v[1], "value", value) ||
      (v[2] != nullptr && !to_u64(v[2], "offset", offset)) ||
      (v[3] != nullptr && !to_choice(v[3], "compare", k_comparisons, 3, compare)) ||
      !to_timeout(v[4], "timeout", timeout)) {
    return nullptr;
  }
  const std::byte* word = nullptr;
  {
    Local local;  // let go before the wait: the library holds what is registered
    PyObject* eight = PyLong_FromLong(8);
    const bool good = eight != nullptr && local.read(v[0], PyLong_Check(v[0]) ? eight : nullptr, false);
    Py_XDECREF(eight);
    if (!good) return nullptr;
    word = static_cast<const std::byte*>(local.data());
    if (local.unproven() ? offset != 0 : local.size() < 8 || offset > local.size() - 8) {
      PyErr_SetString(PyExc_ValueError, "the word does not lie within the local memory");
      return nullptr;
    }
  }
  Runtime& runtime = runtime_of(self);
  return word_or_raise(
      without_gil([&] { return runtime.wait_signal(word + offset, static_cast<Compare>(compare), value, timeout); }));
}

}  // namespace

void add_atomic_methods(std::vector<PyMethodDef>& methods) {
  methods.insert(
      methods.end(),
      {method("atomic_add", post_atomic<Atomic::add>, "atomic_add(at, value, **post)"),
       method("fetch_add", post_atomic<Atomic::fetch_add>,
              "fetch_add(at, value, **post): Request.value() is the word "
              "before"),
       method("swap", post_atomic<Atomic::swap>, "swap(at, value, **post)"),
       method("compare_swap", compare_swap, "compare_swap(at, expected, desired, **post)"),
       method("atomic_add_sync", atomic_sync<Atomic::add>, "atomic_add_sync(at, value, timeout=None)"),
       method("fetch_add_sync", atomic_sync<Atomic::fetch_add>, "fetch_add_sync(at, value, timeout=None): word before"),
       method("swap_sync", atomic_sync<Atomic::swap>, "swap_sync(at, value, timeout=None): word before"),
       method("compare_swap_sync", compare_swap_sync,
              "compare_swap_sync(at, expected, desired, timeout=None): word before"),
       method("wait_signal", wait_signal,
              "wait_signal(local, value, *, offset=0, compare='==', timeout=None): sleeps; gives the word")});
}

}  // namespace hixl::python
