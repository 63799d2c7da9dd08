// SPDX-License-Identifier: Apache-2.0
//
// RuntimeOptions from Python's keyword arguments, by one table of names. Times are seconds here.
#include <functional>
#include <span>

#include "arguments.hpp"
#include "module.hpp"
#include "runtime_type.hpp"

namespace hixl::python {
namespace {

struct Option {
  const char* name;
  bool (*read)(PyObject* value, const char* name, RuntimeOptions& options);
  PyObject* (*show)(const RuntimeOptions& options);
};

template <auto Member>
constexpr Option number(const char* name) {
  return {name,
          [](PyObject* value, const char* title, RuntimeOptions& options) {
            using Field = std::remove_reference_t<decltype(std::invoke(Member, options))>;
            std::uint64_t wide = 0;
            if (!to_u64_up_to(value, title, std::numeric_limits<Field>::max(), wide)) return false;
            std::invoke(Member, options) = static_cast<Field>(wide);
            return true;
          },
          [](const RuntimeOptions& options) { return PyLong_FromUnsignedLongLong(std::invoke(Member, options)); }};
}

template <auto Member>
constexpr Option text(const char* name) {
  return {name,
          [](PyObject* value, const char* title, RuntimeOptions& options) {
            return to_string(value, title, std::invoke(Member, options));
          },
          [](const RuntimeOptions& options) { return PyUnicode_FromString(std::invoke(Member, options).c_str()); }};
}

template <auto Member>
constexpr Option flag(const char* name) {
  return {
      name,
      [](PyObject* value, const char* title, RuntimeOptions& options) {
        return to_bool(value, title, std::invoke(Member, options));
      },
      [](const RuntimeOptions& options) { return PyBool_FromLong(static_cast<long>(std::invoke(Member, options))); }};
}

bool to_milliseconds(PyObject* value, const char* name, std::chrono::milliseconds& out) {
  Timeout time{};
  if (value == Py_None) {
    PyErr_Format(PyExc_TypeError, "%s must be seconds, not None", name);
    return false;
  }
  if (!to_timeout(value, name, time)) return false;
  out = std::chrono::ceil<std::chrono::milliseconds>(time);
  return true;
}

template <auto Member>
constexpr Option seconds(const char* name) {
  return {name,
          [](PyObject* value, const char* title, RuntimeOptions& options) {
            return to_milliseconds(value, title, std::invoke(Member, options));
          },
          [](const RuntimeOptions& options) {
            return PyFloat_FromDouble(static_cast<double>(std::invoke(Member, options).count()) / 1e3);
          }};
}

template <auto Member, const auto& Words>
constexpr Option choice(const char* name) {
  return {name,
          [](PyObject* value, const char* title, RuntimeOptions& options) {
            std::uint8_t place = 0;
            if (!to_choice(value, title, Words, std::size(Words), place)) return false;
            auto& field = std::invoke(Member, options);
            field = static_cast<std::remove_reference_t<decltype(field)>>(place);
            return true;
          },
          [](const RuntimeOptions& options) {
            return PyUnicode_FromString(Words[static_cast<std::size_t>(std::invoke(Member, options))]);
          }};
}

constexpr const char* k_pooling[] = {"best_kind", "all_kinds"};
constexpr const char* k_check[] = {"off", "crc32c"};
constexpr const char* k_poll[] = {"adaptive", "busy", "event"};
constexpr const char* k_degrade[] = {"next_link", "tcp", "fail"};

PyObject* show_links(const RuntimeOptions& options) {
  PyObject* list = PyList_New(0);
  for (const LinkKind kind : options.links) {
    PyObject* word = list == nullptr ? nullptr : PyUnicode_FromString(std::string(name(kind)).c_str());
    if (word == nullptr || PyList_Append(list, word) != 0) Py_CLEAR(list);
    Py_XDECREF(word);
  }
  return list;
}

bool read_bandwidth(PyObject* value, const char* title, RuntimeOptions& options) {
  PyObject* list = PySequence_List(value);
  bool good = list != nullptr;
  options.max_bandwidth.clear();
  for (Py_ssize_t i = 0; good && i < PyList_Size(list); ++i) {
    std::uint64_t rate = 0;
    good = to_u64(PyList_GetItem(list, i), title, rate);
    if (good) options.max_bandwidth.push_back(rate);
  }
  Py_XDECREF(list);
  return good;
}

PyObject* show_bandwidth(const RuntimeOptions& options) {
  PyObject* list = PyList_New(0);
  for (const std::uint64_t rate : options.max_bandwidth) {
    PyObject* number = list == nullptr ? nullptr : PyLong_FromUnsignedLongLong(rate);
    if (number == nullptr || PyList_Append(list, number) != 0) Py_CLEAR(list);
    Py_XDECREF(number);
  }
  return list;
}

/// The hook is asked on the loop thread, which never takes the GIL: so Python may choose one of the answers beforehand.
template <Degrade Answer>
Degrade always(void*, const FailedPiece&) {
  return Answer;
}
bool read_degrade(PyObject* value, const char* title, RuntimeOptions& options) {
  std::uint8_t place = 0;
  if (value == Py_None) {
    options.retry.degrade = {};
    return true;
  }
  if (!to_choice(value, title, k_degrade, 3, place)) return false;
  options.retry.degrade.function = place == 0   ? always<Degrade::next_link>
                                   : place == 1 ? always<Degrade::tcp>
                                                : always<Degrade::fail>;
  return true;
}
PyObject* show_degrade(const RuntimeOptions& options) {
  const auto function = options.retry.degrade.function;
  if (function == nullptr) Py_RETURN_NONE;
  return PyUnicode_FromString(k_degrade[function == always<Degrade::next_link> ? 0
                                        : function == always<Degrade::tcp>     ? 1
                                                                               : 2]);
}

constexpr const char* k_visibility[] = {"read", "ack"};

constexpr auto retry_count = [](auto& o) -> auto& { return o.retry.count; };
constexpr auto retry_pause = [](auto& o) -> auto& { return o.retry.pause; };
constexpr auto retry_pause_max = [](auto& o) -> auto& { return o.retry.pause_max; };
constexpr auto rdma_devices = [](auto& o) -> auto& { return o.rdma.devices; };
constexpr auto rdma_traffic_class = [](auto& o) -> auto& { return o.rdma.traffic_class; };
constexpr auto rdma_service_level = [](auto& o) -> auto& { return o.rdma.service_level; };
constexpr auto rdma_timeout = [](auto& o) -> auto& { return o.rdma.timeout; };
constexpr auto rdma_retry = [](auto& o) -> auto& { return o.rdma.retry; };
constexpr auto rdma_rnr_retry = [](auto& o) -> auto& { return o.rdma.rnr_retry; };
constexpr auto rdma_visibility = [](auto& o) -> auto& { return o.rdma.visibility; };
constexpr auto rdma_threads = [](auto& o) -> auto& { return o.rdma.threads; };

using O = RuntimeOptions;
constexpr Option k_options[] = {
    number<&O::rank>("rank"),
    number<&O::world_size>("world_size"),
    text<&O::store>("store"),
    flag<&O::host_store>("host_store"),
    text<&O::job>("job"),
    text<&O::bind>("bind"),
    text<&O::advertise>("advertise"),
    flag<&O::guest>("guest"),
    flag<&O::insecure>("insecure"),
    text<&O::diagnosis>("diagnosis"),
    {"links", [](PyObject* v, const char*, O& o) { return to_link_kinds(v, o.links); }, show_links},
    number<&O::tcp_links>("tcp_links"),
    choice<&O::pooling, k_pooling>("pooling"),
    text<rdma_devices>("rdma_devices"),
    number<rdma_traffic_class>("rdma_traffic_class"),
    number<rdma_service_level>("rdma_service_level"),
    number<rdma_timeout>("rdma_timeout"),
    number<rdma_retry>("rdma_retry"),
    number<rdma_rnr_retry>("rdma_rnr_retry"),
    choice<rdma_visibility, k_visibility>("rdma_visibility"),
    number<rdma_threads>("rdma_threads"),
    {"max_bandwidth", read_bandwidth, show_bandwidth},
    number<&O::tx_depth>("tx_depth"),
    number<&O::rx_depth>("rx_depth"),
    number<&O::max_inline>("max_inline"),
    number<&O::chunk_bytes>("chunk_bytes"),
    choice<&O::payload_check, k_check>("payload_check"),
    seconds<&O::stall>("stall"),
    number<retry_count>("retry_count"),
    seconds<retry_pause>("retry_pause"),
    seconds<retry_pause_max>("retry_pause_max"),
    {"degrade", read_degrade, show_degrade},
    number<&O::requests_max>("requests_max"),
    number<&O::regions_max>("regions_max"),
    number<&O::peers_max>("peers_max"),
    number<&O::hbm_bytes>("hbm_bytes"),
    number<&O::held_bytes_max>("held_bytes_max"),
    seconds<&O::default_timeout>("default_timeout"),
    seconds<&O::connect_timeout>("connect_timeout"),
    seconds<&O::lease>("lease"),
    choice<&O::poll, k_poll>("poll"),
    number<&O::spin_us>("spin_us"),
    number<&O::copy_engines>("copy_engines"),
    number<&O::seed>("seed"),
};

}  // namespace

bool read_options(PyObject* given, RuntimeOptions& options) {
  PyObject* items = PyDict_Items(given);
  bool good = items != nullptr;
  for (Py_ssize_t i = 0; good && i < PyList_Size(items); ++i) {
    PyObject* key = PyTuple_GetItem(PyList_GetItem(items, i), 0);
    PyObject* value = PyTuple_GetItem(PyList_GetItem(items, i), 1);
    const Option* found = nullptr;
    for (const Option& option : k_options) {
      if (PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(key, option.name) == 0) found = &option;
    }
    if (found == nullptr) {
      PyErr_Format(PyExc_TypeError, "Runtime has no option %R", key);
      good = false;
    } else {
      good = found->read(value, found->name, options);
    }
  }
  Py_XDECREF(items);
  return good;
}

PyObject* to_python(const RuntimeOptions& options) {
  PyObject* all = PyDict_New();
  for (const Option& option : k_options) {
    PyObject* value = all == nullptr ? nullptr : option.show(options);
    if (value == nullptr || PyDict_SetItemString(all, option.name, value) != 0) Py_CLEAR(all);
    Py_XDECREF(value);
  }
  return all;
}

}  // namespace hixl::python
