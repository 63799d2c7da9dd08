// SPDX-License-Identifier: Apache-2.0
#include "doorbell.hpp"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "arguments.hpp"
#include "group_type.hpp"
#include "module.hpp"
#include "remote_type.hpp"

namespace hixl::python {
namespace {

struct DoorbellBody {
  std::shared_ptr<Bell> bell;
};

void close_bell(Bell& bell) {
  close(bell.read_fd);
  close(bell.write_fd);
  bell.read_fd = bell.write_fd = -1;
}

/// Doorbells that were dropped while notices were open: their pipes stay until the last has come.
std::vector<std::shared_ptr<Bell>>& orphans() {
  static std::vector<std::shared_ptr<Bell>> bells;
  return bells;
}

Notice* next_notice(Bell& bell) {
  Notice* notice = nullptr;
  if (bell.process != static_cast<long>(getpid())) return nullptr;
  return ::read(bell.read_fd, &notice, sizeof notice) == static_cast<ssize_t>(sizeof notice) ? notice : nullptr;
}

void forget(Notice* notice) {
  --notice->bell->open;
  Py_XDECREF(notice->runtime);
  delete notice;
}

void sweep_orphans() {
  std::erase_if(orphans(), [](const std::shared_ptr<Bell>& bell) {
    for (Notice* notice = nullptr; (notice = next_notice(*bell)) != nullptr;) forget(notice);
    if (bell->open != 0) return false;
    close_bell(*bell);
    return true;
  });
}

void ring(Notice* notice) {
  // Atomic for so few bytes; there is room, see Bell::limit.
  while (::write(notice->bell->write_fd, &notice, sizeof notice) < 0 && errno == EINTR) {
  }
}

PyObject* doorbell_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  if (PyTuple_Size(arguments) != 0) {
    PyErr_SetString(PyExc_TypeError, "Doorbell() takes no arguments");
    return nullptr;
  }
  sweep_orphans();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return PyErr_SetFromErrno(PyExc_OSError);
  auto bell = std::make_shared<Bell>();
  bell->read_fd = ends[0];
  bell->write_fd = ends[1];
  const int bytes = fcntl(bell->write_fd, F_GETPIPE_SZ);
  if (bytes < 0) {
    PyErr_SetFromErrno(PyExc_OSError);
    close_bell(*bell);
    return nullptr;
  }
  bell->limit = static_cast<std::size_t>(bytes - sysconf(_SC_PAGESIZE)) / sizeof(Notice*);
  bell->process = static_cast<long>(getpid());
  return construct<DoorbellBody>(type, std::move(bell));
}

void doorbell_deallocate(PyObject* self) {
  orphans().push_back(body_of<DoorbellBody>(self).bell);
  destroy<DoorbellBody>(self);
  sweep_orphans();
}

PyObject* doorbell_fd(PyObject* self, PyObject*) { return PyLong_FromLong(body_of<DoorbellBody>(self).bell->read_fd); }

PyObject* doorbell_open(PyObject* self, void*) { return PyLong_FromSize_t(body_of<DoorbellBody>(self).bell->open); }

PyObject* outcome_of(Notice& notice) {
  if (const auto* done = std::get_if<Result<void>>(&notice.outcome)) return none_or_exception(*done);
  if (const auto* completion = std::get_if<Completion>(&notice.outcome)) return to_python(*completion);
  if (const auto* answers = std::get_if<std::vector<PeerAddresses>>(&notice.outcome)) return to_python(*answers);
  auto& group = std::get<Result<Group>>(notice.outcome);
  if (!group) return exception_of(group.error());
  return to_python(std::move(*group), notice.runtime);
}

/// [(ticket, outcome), …]: what has rung. An outcome that could not be made ends it, and is not lost: it is raised.
PyObject* doorbell_take(PyObject* self, PyObject*) {
  Bell& bell = *body_of<DoorbellBody>(self).bell;
  PyObject* rung = PyList_New(0);
  if (rung == nullptr) return nullptr;
  for (Notice* notice = nullptr; (notice = next_notice(bell)) != nullptr;) {
    PyObject* outcome = outcome_of(*notice);
    PyObject* entry = outcome == nullptr ? nullptr : Py_BuildValue("KN", notice->ticket, outcome);
    forget(notice);
    const bool good = entry != nullptr && PyList_Append(rung, entry) == 0;
    Py_XDECREF(entry);
    if (!good) {
      Py_DECREF(rung);
      return nullptr;
    }
  }
  return rung;
}

}  // namespace

std::unique_ptr<Notice> open_notice(PyObject* doorbell, PyObject* ticket, PyObject* runtime) {
  std::uint64_t number = 0;
  if (!PyObject_TypeCheck(doorbell, types().doorbell)) {
    PyErr_SetString(PyExc_TypeError, "doorbell must be a hixl Doorbell");
    return nullptr;
  }
  if (!to_u64(ticket, "ticket", number)) return nullptr;
  const std::shared_ptr<Bell>& bell = body_of<DoorbellBody>(doorbell).bell;
  if (bell->open >= bell->limit) {
    ErrorDetail detail;
    detail.limit = bell->limit;
    raise(Error(ErrorCode::busy, detail));
    return nullptr;
  }
  auto notice = std::make_unique<Notice>();
  ++bell->open;
  notice->bell = bell;
  notice->ticket = number;
  Py_XINCREF(runtime);
  notice->runtime = runtime;
  return notice;
}

void drop_notice(std::unique_ptr<Notice> notice) { forget(notice.release()); }

void ring_done(void* context, const Result<void>& result) {
  auto* notice = static_cast<Notice*>(context);
  notice->outcome = result;
  ring(notice);
}

void ring_completion(void* context, const Completion& completion) {
  auto* notice = static_cast<Notice*>(context);
  notice->outcome = completion;
  ring(notice);
}

void ring_addresses(void* context, std::vector<PeerAddresses>&& answers) {
  auto* notice = static_cast<Notice*>(context);
  notice->outcome = std::move(answers);
  ring(notice);
}

void ring_group(void* context, Result<Group>&& group) {
  auto* notice = static_cast<Notice*>(context);
  notice->outcome = std::move(group);
  ring(notice);
}

PyObject* to_python(const std::vector<PeerAddresses>& answers) {
  PyObject* list = PyList_New(0);
  for (const PeerAddresses& answer : answers) {
    PyObject* regions = list == nullptr ? nullptr : PyList_New(0);
    if (regions == nullptr) break;
    for (const RemoteRegion& region : answer.regions) {
      PyObject* one = to_python(region);
      if (one == nullptr || PyList_Append(regions, one) != 0) Py_CLEAR(list);
      Py_XDECREF(one);
      if (list == nullptr) break;
    }
    PyObject* error = list == nullptr ? nullptr : none_or_exception(answer.result);
    PyObject* made =
        error == nullptr ? nullptr : PyObject_CallFunction(hooks().peer_addresses, "IOO", answer.rank, regions, error);
    Py_XDECREF(error);
    Py_DECREF(regions);
    if (made == nullptr || PyList_Append(list, made) != 0) Py_CLEAR(list);
    Py_XDECREF(made);
    if (list == nullptr) break;
  }
  return list;
}

bool add_doorbell_type(PyObject* module) {
  static PyGetSetDef members[] = {{"open", doorbell_open, nullptr, "notices that have not been taken", nullptr}, {}};
  static PyMethodDef methods[] = {{"fileno", doorbell_fd, METH_NOARGS, "readable while there is something to take"},
                                  {"take", doorbell_take, METH_NOARGS, "[(ticket, outcome), ...] of what has ended"},
                                  {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(doorbell_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(doorbell_deallocate)},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, members},
                                {0, nullptr}};
  static PyType_Spec spec = {"hixl._core.Doorbell", sizeof(Boxed<DoorbellBody>), 0, Py_TPFLAGS_DEFAULT, slots};
  return add_type(module, spec, "Doorbell", types().doorbell);
}

}  // namespace hixl::python
