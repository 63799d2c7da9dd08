# SPDX-License-Identifier: Apache-2.0
"""The few calls of a device runtime that the article's validation script makes: tensors in emulated device memory
(hbm), which the CPU reaches by copies only. Needs numpy."""

import numpy

import hixl
from ascend_hixl import context

_own = {}


class Tensor:
    """A tensor in device memory. `region` is what ascend_hixl sends."""

    def __init__(self, region, shape, dtype):
        self.region, self.shape, self.dtype = region, shape, dtype
        self.nbytes = int(numpy.prod(shape, dtype=numpy.int64)) * dtype.itemsize

    def copy_in(self, array):
        """From an array of the same shape."""
        array = numpy.ascontiguousarray(array, self.dtype)
        if array.shape != self.shape:
            raise ValueError(f"an array of shape {array.shape} for a tensor of shape {self.shape}")
        self.region.runtime.copy_in(self.region, 0, array)

    def numpy(self):
        """A copy in host memory."""
        array = numpy.empty(self.shape, self.dtype)
        self.region.runtime.copy_out(self.region, 0, array)
        return array

    def free(self):
        self.region.deregister()


def allocate(shape, dtype="float32", device=0):
    """A zeroed Tensor on a device: that of the responder that ascend_hixl.init() made there, so that it can be sent as
    it is. NO_MEMORY when the device is full."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    dtype = numpy.dtype(dtype)
    runtime = context.devices.get(device)
    if runtime is None:
        runtime = _own.get(device) or _own.setdefault(device, hixl.Runtime(hbm_bytes=context.HBM_BYTES))
    size = int(numpy.prod(shape, dtype=numpy.int64)) * dtype.itemsize
    return Tensor(runtime.allocate(max(size, 1), kind="hbm"), shape, dtype)


def fill(tensor, value):
    """Sets every element."""
    tensor.copy_in(numpy.full(tensor.shape, value, tensor.dtype))


def to_numpy(data, dtype=None, shape=None):
    """A copy in host memory of a Tensor, of what recv() gave, or of an array."""
    if isinstance(data, Tensor):
        return data.numpy()
    if hasattr(data, "copy_out"):
        array = numpy.empty(data.nbytes, numpy.uint8)
        data.copy_out(array)
        return array.view(dtype or numpy.uint8).reshape(-1 if shape is None else shape)
    return numpy.asarray(data)


def allclose(left, right, **tolerance):
    """numpy.allclose() of two of them. Received bytes take type and shape of the other side; a different length is no
    match, and None (nothing came) is a TypeError."""
    if left is None or right is None:
        raise TypeError("nothing to compare: recv() gave None, so no message came in time")
    typed = left if hasattr(left, "dtype") else right
    if left.nbytes != right.nbytes:
        return False
    dtype, shape = getattr(typed, "dtype", None), getattr(typed, "shape", None)
    return bool(numpy.allclose(to_numpy(left, dtype, shape), to_numpy(right, dtype, shape), **tolerance))
