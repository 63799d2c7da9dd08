// SPDX-License-Identifier: Apache-2.0
//
// What a Runtime does together with others: exchange, barrier, groups; quiet and stop. Each of them in a blocking form,
// and in one that rings a doorbell: _name_async(doorbell, ticket, …).
#include "arguments.hpp"
#include "doorbell.hpp"
#include "group_type.hpp"
#include "module.hpp"
#include "request_type.hpp"
#include "runtime_type.hpp"

namespace hixl::python {
namespace {

/// Hands the notice to the library if `begin` has begun something.
template <class Begin>
PyObject* begin_async(PyObject* self, PyObject* doorbell, PyObject* ticket, Begin&& begin) {
  auto notice = open_notice(doorbell, ticket, self);
  if (notice == nullptr) return nullptr;
  const Result<void> begun = begin(notice.get());
  if (!begun) {
    drop_notice(std::move(notice));
    return raise(begun.error());
  }
  static_cast<void>(notice.release());
  Py_RETURN_NONE;
}

PyObject* exchange(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"regions", "ranks", "timeout"};
  Values<3> v;
  std::vector<Region> regions;
  std::vector<Rank> ranks;
  Timeout timeout{};
  if (!read(v, "exchange", parameters, 3, 2, arguments, count, names) || !to_own_regions(self, v[0], regions) ||
      !to_ranks(v[1], "ranks", ranks) || !to_timeout(v[2], "timeout", timeout)) {
    return nullptr;
  }
  Runtime& runtime = runtime_of(self);
  return to_python(without_gil([&] { return runtime.exchange(regions, ranks, timeout); }));
}

PyObject* exchange_async(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"doorbell", "ticket", "regions", "ranks", "timeout"};
  Values<5> v;
  std::vector<Region> regions;
  std::vector<Rank> ranks;
  Timeout timeout{};
  if (!read(v, "_exchange_async", parameters, 5, 4, arguments, count, names) || !to_own_regions(self, v[2], regions) ||
      !to_ranks(v[3], "ranks", ranks) || !to_timeout(v[4], "timeout", timeout)) {
    return nullptr;
  }
  return begin_async(self, v[0], v[1], [&](Notice* notice) {
    return runtime_of(self).exchange_async(regions, ranks, timeout, ring_addresses, notice);
  });
}

enum class With { prewarm, barrier };

template <With What>
PyObject* with_ranks(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"ranks", "timeout"};
  constexpr bool barrier = What == With::barrier;
  Values<2> v;
  std::vector<Rank> ranks;
  Timeout timeout{};
  if (!read(v, barrier ? "barrier" : "prewarm", parameters, 2, barrier ? 0 : 1, arguments, count, names) ||
      !to_ranks(v[0], "ranks", ranks) || !to_timeout(v[1], "timeout", timeout)) {
    return nullptr;
  }
  Runtime& runtime = runtime_of(self);
  return none_or_raise(
      without_gil([&] { return barrier ? runtime.barrier(timeout, ranks) : runtime.prewarm(ranks, timeout); }));
}

template <With What>
PyObject* with_ranks_async(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"doorbell", "ticket", "ranks", "timeout"};
  constexpr bool barrier = What == With::barrier;
  Values<4> v;
  std::vector<Rank> ranks;
  Timeout timeout{};
  if (!read(v, barrier ? "_barrier_async" : "_prewarm_async", parameters, 4, barrier ? 2 : 3, arguments, count,
            names) ||
      !to_ranks(v[2], "ranks", ranks) || !to_timeout(v[3], "timeout", timeout)) {
    return nullptr;
  }
  Runtime& runtime = runtime_of(self);
  return begin_async(self, v[0], v[1], [&](Notice* notice) {
    return barrier ? runtime.barrier_async(ranks, timeout, ring_done, notice)
                   : runtime.prewarm_async(ranks, timeout, ring_done, notice);
  });
}

enum class Whole { quiet, stop };

Timeout or_default(Timeout timeout, Whole what) {
  return what == Whole::stop && timeout == k_default_timeout ? Timeout(std::chrono::seconds(5)) : timeout;
}

template <Whole What>
PyObject* whole(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"timeout"};
  constexpr bool stop = What == Whole::stop;
  Values<1> v;
  Timeout timeout{};
  if (!read(v, stop ? "stop" : "quiet", parameters, 1, 0, arguments, count, names) ||
      !to_timeout(v[0], "timeout", timeout)) {
    return nullptr;
  }
  Runtime& runtime = runtime_of(self);
  timeout = or_default(timeout, What);
  return none_or_raise(without_gil([&] { return stop ? runtime.stop(timeout) : runtime.quiet(timeout); }));
}

template <Whole What>
PyObject* whole_async(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"doorbell", "ticket", "timeout"};
  constexpr bool stop = What == Whole::stop;
  Values<3> v;
  Timeout timeout{};
  if (!read(v, stop ? "_stop_async" : "_quiet_async", parameters, 3, 2, arguments, count, names) ||
      !to_timeout(v[2], "timeout", timeout)) {
    return nullptr;
  }
  Runtime& runtime = runtime_of(self);
  timeout = or_default(timeout, What);
  return begin_async(self, v[0], v[1], [&](Notice* notice) {
    return stop ? runtime.stop_async(timeout, ring_done, notice) : runtime.quiet_async(timeout, ring_done, notice);
  });
}

struct GroupCall {
  std::vector<Rank> ranks;
  GroupOptions options;
  Timeout timeout{};
  /// `tail`: ranks, links, default_timeout, tag, timeout.
  bool read(PyObject* const* tail) {
    std::vector<LinkKind> kinds;
    Timeout each{0};
    if (!to_ranks(tail[0], "ranks", ranks) || !to_link_kinds(tail[1], kinds) ||
        (tail[2] != nullptr && tail[2] != Py_None && !to_timeout(tail[2], "default_timeout", each)) ||
        (tail[3] != nullptr && !to_u32(tail[3], "tag", options.tag)) || !to_timeout(tail[4], "timeout", timeout)) {
      return false;
    }
    for (const LinkKind kind : kinds) options.links.add(kind);
    options.default_timeout = std::chrono::ceil<std::chrono::milliseconds>(each);
    return true;
  }
};

PyObject* create_group(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"ranks", "links", "default_timeout", "tag", "timeout"};
  Values<5> v;
  GroupCall call;
  if (!read(v, "create_group", parameters, 1, 1, arguments, count, names) || !call.read(v.values.data())) {
    return nullptr;
  }
  Runtime& runtime = runtime_of(self);
  auto group = without_gil([&] { return runtime.create_group(call.ranks, call.options, call.timeout); });
  return group ? to_python(std::move(*group), self) : raise(group.error());
}

PyObject* create_group_async(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  static constexpr const char* parameters[] = {"doorbell",        "ticket", "ranks",  "links",
                                               "default_timeout", "tag",    "timeout"};
  Values<7> v;
  GroupCall call;
  if (!read(v, "_create_group_async", parameters, 3, 3, arguments, count, names) || !call.read(&v.values[2])) {
    return nullptr;
  }
  return begin_async(self, v[0], v[1], [&](Notice* notice) {
    return runtime_of(self).create_group_async(call.ranks, call.options, call.timeout, ring_group, notice);
  });
}

PyObject* joined(PyObject* self, PyObject*) { return to_python(runtime_of(self).joined()); }

}  // namespace

void add_together_methods(std::vector<PyMethodDef>& methods) {
  methods.insert(
      methods.end(),
      {method("exchange", exchange, "exchange(regions, ranks, timeout=None): PeerAddresses of each rank"),
       method("_exchange_async", exchange_async, nullptr),
       method("prewarm", with_ranks<With::prewarm>, "prewarm(ranks, timeout=None): makes all links to them now"),
       method("_prewarm_async", with_ranks_async<With::prewarm>, nullptr),
       method("barrier", with_ranks<With::barrier>, "barrier(ranks=None, timeout=None): None means the whole world"),
       method("_barrier_async", with_ranks_async<With::barrier>, nullptr),
       method("quiet", whole<Whole::quiet>, "quiet(timeout=None): a flush of all ranks"),
       method("_quiet_async", whole_async<Whole::quiet>, nullptr),
       method("stop", whole<Whole::stop>, "stop(timeout=5): tells the peers, drains, then ends the rest"),
       method("_stop_async", whole_async<Whole::stop>, nullptr),
       method("create_group", create_group,
              "create_group(ranks, *, links=None, default_timeout=None, tag=0, timeout=None)"),
       method("_create_group_async", create_group_async, nullptr),
       {"joined", joined, METH_NOARGS, "a Request that ends when this rank has joined"}});
}

}  // namespace hixl::python
