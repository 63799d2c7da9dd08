# SPDX-License-Identifier: Apache-2.0
"""Memory of objects without the buffer protocol: tensors of torch and its kin by data_ptr(), others by DLPack."""

from . import _core


def lend(memory, writable):
    """(address, bytes, what holds it) for the extension. TypeError: not memory; BufferError: not memory that may be
    used as it is."""
    data_ptr = getattr(memory, "data_ptr", None)
    if callable(data_ptr):
        return _lend_torch(memory, data_ptr)
    dlpack = getattr(memory, "__dlpack__", None)
    if callable(dlpack):
        return _core.dlpack_lend(dlpack())
    raise TypeError("local memory must be a buffer (bytes, numpy array, ...), a tensor, a hixl.Region or an address, "
                    f"not {type(memory).__name__}")


def _lend_torch(tensor, data_ptr):
    device = getattr(getattr(tensor, "device", None), "type", "cpu")
    if device != "cpu":
        raise BufferError(f"the tensor is on {device}, whose memory the CPU cannot use")
    if not tensor.is_contiguous():
        raise BufferError("the tensor has gaps; call contiguous() first")
    return data_ptr(), tensor.numel() * tensor.element_size(), tensor


def as_array(region, dtype="uint8", shape=None, offset=0):
    """A numpy array over a Region, without a copy. The region cannot be deregistered while the array lives."""
    import numpy  # only who asks for an array needs it

    dtype = numpy.dtype(dtype)
    if shape is None:
        count = (region.size - offset) // dtype.itemsize
        return numpy.frombuffer(region, dtype, count, offset)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    count = 1
    for length in shape:
        count *= length
    return numpy.frombuffer(region, dtype, count, offset).reshape(shape)
