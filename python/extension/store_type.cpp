// SPDX-License-Identifier: Apache-2.0
//
// Store as a Python type.
#include <hixl/store.hpp>

#include "arguments.hpp"
#include "module.hpp"

namespace hixl::python {
namespace {

struct StoreBody {
  std::unique_ptr<Store> store;
};

PyObject* store_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"url", "insecure", nullptr};
  PyObject* address = nullptr;
  PyObject* open = nullptr;
  std::string url;
  bool insecure = false;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O:Store", const_cast<char**>(names), &address, &open) == 0 ||
      !to_string(address, "url", url) || (open != nullptr && !to_bool(open, "insecure", insecure))) {
    return nullptr;
  }
  auto store = without_gil([&] { return Store::create(url, insecure); });
  return store ? construct<StoreBody>(type, std::move(*store)) : raise(store.error());
}

PyObject* store_close(PyObject* self, PyObject*) {
  std::unique_ptr<Store> store = std::move(body_of<StoreBody>(self).store);
  without_gil([&] {
    store.reset();
    return 0;
  });
  Py_RETURN_NONE;
}

void store_deallocate(PyObject* self) {
  Py_XDECREF(store_close(self, nullptr));
  destroy<StoreBody>(self);
}

PyObject* store_url(PyObject* self, void*) {
  const auto& store = body_of<StoreBody>(self).store;
  if (store == nullptr) {
    PyErr_SetString(PyExc_ValueError, "the store has been closed");
    return nullptr;
  }
  return PyUnicode_FromString(store->url().c_str());
}

}  // namespace

bool add_store_type(PyObject* module) {
  static PyMethodDef methods[] = {{"close", store_close, METH_NOARGS, "ends it; ranks that know each other go on"}, {}};
  static PyGetSetDef members[] = {{"url", store_url, nullptr, "for Runtime(store=...) and HIXL_STORE", nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(store_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(store_deallocate)},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, members},
                                {Py_tp_doc, const_cast<char*>("The rendezvous store, outside all ranks.")},
                                {0, nullptr}};
  static PyType_Spec spec = {"hixl._core.Store", sizeof(Boxed<StoreBody>), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                             slots};
  static PyTypeObject*& type = types().store;
  return add_type(module, spec, "Store", type);
}

}  // namespace hixl::python
