// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "module.hpp"
#include "region_type.hpp"
#include "remote_type.hpp"

namespace hixl::python {

bool read_values(const Signature& signature, PyObject* const* arguments, Py_ssize_t count, PyObject* names,
                 PyObject** values) {
  const auto places = static_cast<std::size_t>(count);
  if (places > signature.positional) {
    PyErr_Format(PyExc_TypeError, "%s() takes at most %zu arguments by place, and was given %zu", signature.function,
                 signature.positional, places);
    return false;
  }
  for (std::size_t i = 0; i < places; ++i) values[i] = arguments[i];
  const Py_ssize_t keywords = names == nullptr ? 0 : PyTuple_Size(names);
  for (Py_ssize_t k = 0; k < keywords; ++k) {
    PyObject* name = PyTuple_GetItem(names, k);
    std::size_t i = 0;
    while (i < signature.count && PyUnicode_CompareWithASCIIString(name, signature.names[i]) != 0) ++i;
    if (i == signature.count) {
      PyErr_Format(PyExc_TypeError, "%s() has no argument %R", signature.function, name);
      return false;
    }
    if (values[i] != nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() got %R twice", signature.function, name);
      return false;
    }
    values[i] = arguments[count + k];
  }
  for (std::size_t i = 0; i < signature.required; ++i) {
    if (values[i] == nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() needs %s", signature.function, signature.names[i]);
      return false;
    }
  }
  return true;
}

bool to_u64(PyObject* value, const char* name, std::uint64_t& out) {
  PyObject* number = PyNumber_Index(value);
  if (number == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Format(PyExc_TypeError, "%s must be an integer, not %R", name, Py_TYPE(value));
    }
    return false;
  }
  out = PyLong_AsUnsignedLongLong(number);
  const bool wrong = out == std::numeric_limits<std::uint64_t>::max() && PyErr_Occurred() != nullptr;
  if (wrong && PyErr_ExceptionMatches(PyExc_OverflowError)) {
    PyErr_Format(PyExc_ValueError, "%s is %R; it must be 0 ... 2**64 - 1", name, number);
  }
  Py_DECREF(number);
  return !wrong;
}

bool to_u64_up_to(PyObject* value, const char* name, std::uint64_t limit, std::uint64_t& out) {
  if (!to_u64(value, name, out)) return false;
  if (out <= limit) return true;
  PyErr_Format(PyExc_ValueError, "%s is %R; it must be 0 ... %llu", name, value,
               static_cast<unsigned long long>(limit));
  return false;
}

bool to_u32(PyObject* value, const char* name, std::uint32_t& out) {
  std::uint64_t wide = 0;
  if (!to_u64_up_to(value, name, std::numeric_limits<std::uint32_t>::max(), wide)) return false;
  out = static_cast<std::uint32_t>(wide);
  return true;
}

bool to_bool(PyObject* value, const char* name, bool& out) {
  if (value != Py_True && value != Py_False) {
    PyErr_Format(PyExc_TypeError, "%s must be True or False, not %R", name, Py_TYPE(value));
    return false;
  }
  out = value == Py_True;
  return true;
}

bool to_string(PyObject* value, const char* name, std::string& out) {
  if (!PyUnicode_Check(value)) {
    PyErr_Format(PyExc_TypeError, "%s must be a str, not %R", name, Py_TYPE(value));
    return false;
  }
  PyObject* bytes = PyUnicode_AsUTF8String(value);
  if (bytes == nullptr) return false;
  out.assign(PyBytes_AsString(bytes), static_cast<std::size_t>(PyBytes_Size(bytes)));
  Py_DECREF(bytes);
  if (out.find('\0') == std::string::npos) return true;
  PyErr_Format(PyExc_ValueError, "%s holds a null character", name);
  return false;
}

bool to_timeout(PyObject* value, const char* name, Timeout& out) {
  out = k_default_timeout;
  if (value == nullptr || value == Py_None) return true;
  const double seconds = PyFloat_AsDouble(value);
  if (seconds == -1.0 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Format(PyExc_TypeError, "%s must be seconds (int or float) or None, not %R", name, Py_TYPE(value));
    }
    return false;
  }
  // Thirty years: whoever writes more means nanoseconds or "for ever", and 64 bits of nanoseconds hold 292 years.
  constexpr double k_seconds_max = 1e9;
  if (!(seconds >= 0) || seconds > k_seconds_max) {
    PyErr_Format(PyExc_ValueError, "%s is %R; it must be 0 ... 1e9 seconds", name, value);
    return false;
  }
  out = Timeout(static_cast<std::int64_t>(std::ceil(seconds * 1e9)));
  return true;
}

namespace {

/// Calls `one` for each item; one that gives false ends it.
template <class One>
bool each(PyObject* value, const char* name, const char* what, One&& one) {
  PyObject* iterator = PyUnicode_Check(value) || PyBytes_Check(value) ? nullptr : PyObject_GetIter(value);
  if (iterator == nullptr) {
    PyErr_Format(PyExc_TypeError, "%s must be several %s (a list, a tuple, ...), not %R", name, what, Py_TYPE(value));
    return false;
  }
  bool good = true;
  for (PyObject* item = nullptr; good && (item = PyIter_Next(iterator)) != nullptr;) {
    good = one(item);
    Py_DECREF(item);
  }
  Py_DECREF(iterator);
  return good && PyErr_Occurred() == nullptr;
}

}  // namespace

bool to_ranks(PyObject* value, const char* name, std::vector<Rank>& out) {
  out.clear();
  if (value == nullptr || value == Py_None) return true;
  return each(value, name, "ranks", [&](PyObject* item) {
    Rank rank = 0;
    if (!to_u32(item, name, rank)) return false;
    out.push_back(rank);
    return true;
  });
}

bool to_choice(PyObject* value, const char* name, const char* const* words, std::size_t count, std::uint8_t& out) {
  if (PyUnicode_Check(value)) {
    for (std::size_t i = 0; i < count; ++i) {
      if (PyUnicode_CompareWithASCIIString(value, words[i]) == 0) {
        out = static_cast<std::uint8_t>(i);
        return true;
      }
    }
    std::string all;
    for (std::size_t i = 0; i < count; ++i) all += std::string(i == 0 ? "" : ", ") + words[i];
    PyErr_Format(PyExc_ValueError, "%s is %R; it must be one of: %s", name, value, all.c_str());
    return false;
  }
  std::uint64_t number = 0;
  if (!to_u64_up_to(value, name, count - 1, number)) return false;
  out = static_cast<std::uint8_t>(number);
  return true;
}

bool to_link_kind(PyObject* value, LinkKind& out) {
  static constexpr const char* k_kinds[] = {"hccs", "pcie", "roce", "ub", "tcp", "sim"};
  std::uint8_t number = 0;
  if (!to_choice(value, "links", k_kinds, std::size(k_kinds), number)) return false;
  out = static_cast<LinkKind>(number);
  return true;
}

bool to_link_kinds(PyObject* value, std::vector<LinkKind>& out) {
  out.clear();
  if (value == nullptr || value == Py_None) return true;
  LinkKind kind{};
  if (PyUnicode_Check(value) || PyLong_Check(value)) {
    if (!to_link_kind(value, kind)) return false;
    out.push_back(kind);
    return true;
  }
  return each(value, "links", "link kinds", [&](PyObject* item) {
    if (!to_link_kind(item, kind)) return false;
    out.push_back(kind);
    return true;
  });
}

bool to_rights(PyObject* value, Rights& out) {
  out = Rights::all;
  if (value == nullptr || value == Py_None) return true;
  std::uint64_t bits = 0;
  if (!to_u64_up_to(value, "rights", static_cast<std::uint8_t>(Rights::all), bits)) return false;
  out = static_cast<Rights>(bits);
  return true;
}

bool to_remote(PyObject* value, const char* name, RemoteAddress& out) {
  if (PyObject_TypeCheck(value, types().remote_address)) {
    out = body_of<RemoteAddress>(value);
    return true;
  }
  if (PyObject_TypeCheck(value, types().remote_region)) {
    out = body_of<RemoteRegion>(value).at(0);
    return true;
  }
  PyErr_Format(PyExc_TypeError, "%s must be a RemoteAddress or a RemoteRegion, not %R", name, Py_TYPE(value));
  return false;
}

Local::~Local() {
  if (view_.obj != nullptr) PyBuffer_Release(&view_);
  if (region_ != nullptr) --body_of<RegionBody>(region_).views;
  Py_XDECREF(region_);
  Py_XDECREF(keep_);
}

Local::Local(Local&& other) noexcept
    : data_(other.data_),
      size_(other.size_),
      unproven_(other.unproven_),
      keep_(std::exchange(other.keep_, nullptr)),
      region_(std::exchange(other.region_, nullptr)),
      view_(std::exchange(other.view_, {})) {}

bool Local::read_whole(PyObject* object, bool writable) {
  if (PyObject_TypeCheck(object, types().region)) {
    RegionBody& region = body_of<RegionBody>(object);
    if (!region.usable()) return false;
    data_ = region.region.data;
    size_ = region.region.size;
    ++region.views;
    Py_INCREF(object);
    region_ = object;
    return true;
  }
  if (PyObject_CheckBuffer(object) != 0) {
    if (PyObject_GetBuffer(object, &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) return false;
    data_ = view_.buf;
    size_ = static_cast<std::uint64_t>(view_.len);
    return true;
  }
  // Tensors: found out in Python, which knows their words best: (address, bytes, what holds it).
  PyObject* lent = PyObject_CallFunction(hooks().tensor, "OO", object, writable ? Py_True : Py_False);
  if (lent == nullptr) return false;
  std::uint64_t address = 0;
  const bool good = PyArg_ParseTuple(lent, "KKO", &address, &size_, &keep_) != 0;
  if (good) {
    Py_INCREF(keep_);
    data_ = reinterpret_cast<void*>(address);
  } else {
    keep_ = nullptr;
  }
  Py_DECREF(lent);
  return good;
}

bool Local::read(PyObject* object, PyObject* size, bool writable) {
  const bool sized = size != nullptr && size != Py_None;
  if (PyLong_Check(object)) {
    std::uint64_t address = 0;
    if (!to_u64(object, "local", address)) return false;
    if (!sized) {
      PyErr_SetString(PyExc_TypeError, "an address as local memory needs a size");
      return false;
    }
    data_ = reinterpret_cast<void*>(address);
    unproven_ = true;
    return to_u64(size, "size", size_);
  }
  if (!read_whole(object, writable)) return false;
  if (!sized) return true;
  std::uint64_t wanted = 0;
  if (!to_u64(size, "size", wanted)) return false;
  if (wanted > size_) {
    PyErr_Format(PyExc_ValueError, "size is %llu, and the local buffer has %llu bytes",
                 static_cast<unsigned long long>(wanted), static_cast<unsigned long long>(size_));
    return false;
  }
  size_ = wanted;
  return true;
}

}  // namespace hixl::python
