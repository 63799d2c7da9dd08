// SPDX-License-Identifier: Apache-2.0
//
// Memory of a Runtime: registering, allocating, copying, deregistering.
#include "arguments.hpp"
#include "doorbell.hpp"
#include "module.hpp"
#include "region_type.hpp"
#include "runtime_type.hpp"

namespace hixl::python {
namespace {

std::uint64_t number_of(const RegionKey& key) { return std::uint64_t{key.generation} << 32U | key.id; }

PyObject* register_memory(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"memory", "size", "rights", "tag"};
  Values<4> v;
  RegisterOptions options;
  Local local;
  if (!read(v, "register_memory", parameters, 2, 1, arguments, count, names) || !to_rights(v[2], options.rights) ||
      (v.given(3) && !to_u32(v[3], "tag", options.tag)) ||
      !local.read(v[0], v[1], options.rights != Rights::read && options.rights != Rights::none)) {
    return nullptr;
  }
  RuntimeBody& body = body_of<RuntimeBody>(self);
  // Held by the table from here on: no buffer is let go if this thread never comes back.
  const auto kept = body.kept.emplace(0, std::move(local));
  void* const data = kept->second.data();
  const std::uint64_t size = kept->second.size();
  const auto region = without_gil([&] { return body.runtime->register_memory(data, size, options); });
  auto node = body.kept.extract(kept);
  if (!region) return raise(region.error());
  if (node.mapped().unproven()) return to_python(*region, self);
  node.key() = number_of(region->key);
  body.kept.insert(std::move(node));
  return to_python(*region, self);
}

bool to_numa_node(PyObject* value, int& out) {
  if (PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, "auto") == 0) {
    out = k_numa_auto;
    return true;
  }
  std::uint64_t node = 0;
  if (!to_u64_up_to(value, "numa_node", 1U << 20U, node)) return false;
  out = static_cast<int>(node);
  return true;
}

PyObject* allocate(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {
      "size", "rights", "tag", "zero_on_release", "kind", "allow_paging_to_ddr", "huge_pages", "numa_node"};
  static constexpr const char* k_kinds[] = {"host", "hbm"};
  static constexpr const char* k_huge[] = {"none", "prefer", "require"};
  Values<8> v;
  AllocateOptions options;
  std::uint64_t size = 0;
  std::uint8_t kind = 0;
  std::uint8_t huge = 0;
  if (!read(v, "allocate", parameters, 1, 1, arguments, count, names) || !to_u64(v[0], "size", size) ||
      !to_rights(v[1], options.rights) || (v.given(2) && !to_u32(v[2], "tag", options.tag)) ||
      (v.given(3) && !to_bool(v[3], "zero_on_release", options.zero_on_release)) ||
      (v.given(4) && !to_choice(v[4], "kind", k_kinds, 2, kind)) ||
      (v.given(5) && !to_bool(v[5], "allow_paging_to_ddr", options.allow_paging_to_ddr)) ||
      (v.given(6) && !to_choice(v[6], "huge_pages", k_huge, 3, huge)) ||
      (v.given(7) && !to_numa_node(v[7], options.numa_node))) {
    return nullptr;
  }
  options.kind = static_cast<MemoryKind>(kind);
  options.huge_pages = static_cast<HugePages>(huge);
  Runtime& runtime = runtime_of(self);
  const auto region = without_gil([&] { return runtime.allocate(size, options); });
  return region ? to_python(*region, self) : raise(region.error());
}

/// The Region of a call that ends it, marked as closing; null with an exception.
RegionBody* begin_closing(PyObject* self, PyObject* object) {
  if (!owns_region(self, object)) return nullptr;
  RegionBody& region = body_of<RegionBody>(object);
  if (!region.usable()) return nullptr;
  if (region.views > 0) {
    PyErr_Format(PyExc_BufferError,
                 "%zd views of the region (memoryview, numpy array, batch, ...) are still there: drop them first",
                 region.views);
    return nullptr;
  }
  region.closing = true;
  return &region;
}

void end_closing(RuntimeBody& runtime, RegionBody& region, bool gone) {
  region.closing = false;
  if (!gone) return;
  region.closed = true;
  const auto kept = runtime.kept.find(number_of(region.region.key));
  if (kept == runtime.kept.end()) return;
  const auto node = runtime.kept.extract(kept);  // out of the table before a destructor of Python's may run
}

PyObject* deregister(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"region", "timeout"};
  Values<2> v;
  Timeout timeout{};
  if (!read(v, "deregister", parameters, 2, 1, arguments, count, names) || !to_timeout(v[1], "timeout", timeout)) {
    return nullptr;
  }
  RegionBody* region = begin_closing(self, v[0]);
  if (region == nullptr) return nullptr;
  Runtime& runtime = runtime_of(self);
  const auto result = without_gil([&] { return runtime.deregister(region->region, timeout); });
  end_closing(body_of<RuntimeBody>(self), *region, result.has_value());
  return none_or_raise(result);
}

/// _deregister_async(doorbell, ticket, region, timeout); _deregistered(region, success) has to follow.
PyObject* deregister_async(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"doorbell", "ticket", "region", "timeout"};
  Values<4> v;
  Timeout timeout{};
  if (!read(v, "_deregister_async", parameters, 4, 3, arguments, count, names) ||
      !to_timeout(v[3], "timeout", timeout)) {
    return nullptr;
  }
  auto notice = open_notice(v[0], v[1], self);
  if (notice == nullptr) return nullptr;
  RegionBody* region = begin_closing(self, v[2]);
  if (region == nullptr) {
    drop_notice(std::move(notice));
    return nullptr;
  }
  const auto begun = runtime_of(self).deregister_async(region->region, timeout, ring_done, notice.get());
  if (!begun) {
    drop_notice(std::move(notice));
    end_closing(body_of<RuntimeBody>(self), *region, false);
    return raise(begun.error());
  }
  static_cast<void>(notice.release());
  Py_RETURN_NONE;
}

PyObject* deregistered(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"region", "success"};
  Values<2> v;
  bool success = false;
  if (!read(v, "_deregistered", parameters, 2, 2, arguments, count, names) || !owns_region(self, v[0]) ||
      !to_bool(v[1], "success", success)) {
    return nullptr;
  }
  RegionBody& region = body_of<RegionBody>(v[0]);
  if (region.closing) end_closing(body_of<RuntimeBody>(self), region, success);
  Py_RETURN_NONE;
}

template <bool In>
PyObject* copy(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"region", "offset", "buffer"};
  Values<3> v;
  std::uint64_t offset = 0;
  if (!read(v, In ? "copy_in" : "copy_out", parameters, 3, 3, arguments, count, names) || !owns_region(self, v[0]) ||
      !to_u64(v[1], "offset", offset)) {
    return nullptr;
  }
  if (PyLong_Check(v[2])) {
    PyErr_SetString(PyExc_TypeError, "buffer must be a buffer: a bare address may be anything");
    return nullptr;
  }
  auto* local = new Local;  // by hand, so that the end of the interpreter unwinds no buffer
  if (!local->read(v[2], nullptr, !In)) {
    delete local;
    return nullptr;
  }
  const Region region = body_of<RegionBody>(v[0]).region;
  Runtime& runtime = runtime_of(self);
  const auto result = without_gil([&] {
    return In ? runtime.copy_in(region, offset, local->data(), local->size())
              : runtime.copy_out(region, offset, local->data(), local->size());
  });
  delete local;
  return none_or_raise(result);
}

}  // namespace

bool owns_region(PyObject* runtime, PyObject* region) {
  if (!PyObject_TypeCheck(region, types().region)) {
    PyErr_Format(PyExc_TypeError, "region must be a hixl.Region, not %R", Py_TYPE(region));
    return false;
  }
  if (body_of<RegionBody>(region).runtime == runtime) return true;
  PyErr_SetString(PyExc_ValueError, "the region belongs to another runtime");
  return false;
}

bool to_own_regions(PyObject* runtime, PyObject* value, std::vector<Region>& out) {
  PyObject* list = nullptr;
  if (PyObject_TypeCheck(value, types().region)) {
    list = Py_BuildValue("[O]", value);
  } else {
    list = PyUnicode_Check(value) || PyBytes_Check(value) ? nullptr : PySequence_List(value);
    if (list == nullptr) {
      PyErr_Format(PyExc_TypeError, "regions must be hixl.Region, one or several, not %R", Py_TYPE(value));
    }
  }
  bool good = list != nullptr;
  for (Py_ssize_t i = 0; good && i < PyList_Size(list); ++i) {
    PyObject* one = PyList_GetItem(list, i);
    good = owns_region(runtime, one) && body_of<RegionBody>(one).usable();
    if (good) out.push_back(body_of<RegionBody>(one).region);
  }
  Py_XDECREF(list);
  return good;
}

void add_memory_methods(std::vector<PyMethodDef>& methods) {
  methods.insert(
      methods.end(),
      {method("register_memory", register_memory,
              "register_memory(memory, size=None, *, rights=Rights.ALL, tag=0): a Region over a buffer, tensor or "
              "address"),
       method("allocate", allocate,
              "allocate(size, *, rights, tag, zero_on_release, kind, allow_paging_to_ddr, huge_pages, numa_node)"),
       method("deregister", deregister, "deregister(region, timeout=None): afterwards nobody touches its memory"),
       method("_deregister_async", deregister_async, "_deregister_async(doorbell, ticket, region, timeout=None)"),
       method("_deregistered", deregistered, "_deregistered(region, success)"),
       method("copy_in", copy<true>, "copy_in(region, offset, buffer): from ordinary memory into a region"),
       method("copy_out", copy<false>, "copy_out(region, offset, buffer): out of a region into ordinary memory")});
}

}  // namespace hixl::python
