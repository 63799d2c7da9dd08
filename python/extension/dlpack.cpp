// SPDX-License-Identifier: Apache-2.0
#include "dlpack.hpp"

namespace hixl::python {
namespace {

struct Tensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t dimensions;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: without gaps
  std::uint64_t byte_offset;
};
/// Devices whose memory the CPU reads: host, and host memory pinned by CUDA or ROCm.
constexpr std::int32_t k_cpu = 1;
constexpr std::int32_t k_cuda_host = 3;
constexpr std::int32_t k_rocm_host = 11;

bool without_gaps(const Tensor& tensor) {
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.dimensions - 1; i >= 0 && tensor.strides != nullptr; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

}  // namespace

PyObject* dlpack_lend(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  if (PyArg_ParseTuple(arguments, "O:dlpack_lend", &capsule) == 0) return nullptr;
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) {
    PyErr_SetString(PyExc_TypeError, "not a capsule of an unused DLPack tensor");
    return nullptr;
  }
  // The capsule is not consumed: it stays its owner, and frees the tensor when we let it go.
  const auto& tensor = *static_cast<const Tensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  if (tensor.device_type != k_cpu && tensor.device_type != k_cuda_host && tensor.device_type != k_rocm_host) {
    PyErr_Format(PyExc_BufferError, "the tensor is on a device (DLPack type %d) whose memory the CPU cannot use",
                 static_cast<int>(tensor.device_type));
    return nullptr;
  }
  if (!without_gaps(tensor)) {
    PyErr_SetString(PyExc_BufferError, "the tensor has gaps; make it contiguous first");
    return nullptr;
  }
  std::uint64_t elements = 1;
  for (std::int32_t i = 0; i < tensor.dimensions; ++i) elements *= static_cast<std::uint64_t>(tensor.shape[i]);
  const std::uint64_t bits = elements * tensor.type_bits * tensor.type_lanes;
  return Py_BuildValue("KKO", reinterpret_cast<std::uint64_t>(tensor.data) + tensor.byte_offset, (bits + 7) / 8,
                       capsule);
}

}  // namespace hixl::python
