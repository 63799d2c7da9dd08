// SPDX-License-Identifier: Apache-2.0
//
// From Python's arguments to the library's: each function sets a Python exception that names the argument and gives
// false when a value is of the wrong type or outside what C++ could hold. What is in range but wrong is for the library
// to say.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hixl/completion_queue.hpp>
#include <hixl/transfer.hpp>
#include <hixl/types.hpp>

#include "abi.hpp"

namespace hixl::python {

/// Names of parameters, in order; the first `positional` may be given by place, the first `required` must be given.
struct Signature {
  const char* function;
  const char* const* names;
  std::size_t count;
  std::size_t positional;
  std::size_t required;
};
/// One of them, in a function: `static constexpr const char* names[] = {…}; Values<3> v; if (!v.read(…)) return null`.
template <std::size_t Count>
struct Values {
  std::array<PyObject*, Count> values{};  // borrowed; null: not given

  [[nodiscard]] PyObject* operator[](std::size_t index) const noexcept { return values[index]; }
  [[nodiscard]] bool given(std::size_t index) const noexcept {
    return values[index] != nullptr && values[index] != Py_None;
  }
};
[[nodiscard]] bool read_values(const Signature& signature, PyObject* const* arguments, Py_ssize_t count,
                               PyObject* names, PyObject** values);
template <std::size_t Count>
[[nodiscard]] bool read(Values<Count>& values, const char* function, const char* const (&parameters)[Count],
                        std::size_t positional, std::size_t required, PyObject* const* arguments, Py_ssize_t count,
                        PyObject* names) {
  return read_values({function, parameters, Count, positional, required}, arguments, count, names,
                     values.values.data());
}

[[nodiscard]] bool to_u64(PyObject* value, const char* name, std::uint64_t& out);
[[nodiscard]] bool to_u64_up_to(PyObject* value, const char* name, std::uint64_t limit, std::uint64_t& out);
[[nodiscard]] bool to_u32(PyObject* value, const char* name, std::uint32_t& out);
[[nodiscard]] bool to_bool(PyObject* value, const char* name, bool& out);
[[nodiscard]] bool to_string(PyObject* value, const char* name, std::string& out);
/// Seconds, as an int or a float; null and None: k_default_timeout.
[[nodiscard]] bool to_timeout(PyObject* value, const char* name, Timeout& out);
[[nodiscard]] bool to_ranks(PyObject* value, const char* name, std::vector<Rank>& out);
/// A number, or one of `words`, whose place is the number.
[[nodiscard]] bool to_choice(PyObject* value, const char* name, const char* const* words, std::size_t count,
                             std::uint8_t& out);
[[nodiscard]] bool to_link_kind(PyObject* value, LinkKind& out);
/// One kind, or several in any iterable.
[[nodiscard]] bool to_link_kinds(PyObject* value, std::vector<LinkKind>& out);
[[nodiscard]] bool to_rights(PyObject* value, Rights& out);
/// A RemoteAddress, or a RemoteRegion for its start.
[[nodiscard]] bool to_remote(PyObject* value, const char* name, RemoteAddress& out);

/// Local memory of one call. What holds the buffer is let go with it: the library has copied by then, or the memory is
/// registered, and what is registered is held until it is deregistered. A Region counts it as a view, so that its
/// memory does not go meanwhile.
class Local {
 public:
  Local() = default;
  ~Local();
  Local(const Local&) = delete;
  Local& operator=(const Local&) = delete;
  Local(Local&& other) noexcept;
  /// A buffer (bytes, numpy, …), a tensor (data_ptr, or DLPack), a Region, or a number, which is an address and needs
  /// `size`. A smaller size than the buffer's takes its front.
  [[nodiscard]] bool read(PyObject* object, PyObject* size, bool writable);
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// A number was given: nothing shows that anything is there.
  [[nodiscard]] bool unproven() const noexcept { return unproven_; }

 private:
  [[nodiscard]] bool read_whole(PyObject* object, bool writable);
  void* data_ = nullptr;
  std::uint64_t size_ = 0;
  bool unproven_ = false;
  PyObject* keep_ = nullptr;    // what a tensor was lent by
  PyObject* region_ = nullptr;  // whose views count this
  Py_buffer view_{};
};

}  // namespace hixl::python
