# SPDX-License-Identifier: Apache-2.0
"""Memory of all kinds of objects, and who holds it how long."""

import array
import ctypes
import gc
import mmap
import unittest
import weakref

import hixl
from support import PairTest, needs_numpy, numpy, pattern


class Tensor:
    """What the package needs of torch's."""

    def __init__(self, data, device="cpu", contiguous=True):
        self._data = data
        self.device = type("device", (), {"type": device})()
        self._contiguous = contiguous

    def data_ptr(self):
        return ctypes.addressof(self._data)

    def numel(self):
        return len(self._data)

    def element_size(self):
        return 4

    def is_contiguous(self):
        return self._contiguous


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Lender:
    """An array library that knows DLPack and nothing else: 3 rows of 5 floats."""

    def __init__(self, device=1, strides=None):
        self.floats = (ctypes.c_float * 16)(*range(16))
        self._shape = (ctypes.c_int64 * 2)(3, 5)
        self._strides = strides and (ctypes.c_int64 * 2)(*strides)
        self._tensor = DLTensor(ctypes.addressof(self.floats), device, 0, 2, 2, 32, 1, self._shape, self._strides, 4)

    def __dlpack__(self):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self._tensor), b"dltensor", None)


class Memory(PairTest):
    def sent(self, region, size):
        """Registered memory arrives at the other side whole."""
        memoryview(self.window_b)[:size] = bytes(size)
        self.a.put_sync(region, self.remote_b)
        return bytes(memoryview(self.window_b)[:size])

    def test_buffers_of_the_standard_library(self):
        page = mmap.mmap(-1, 8192)
        page.write(pattern(8192))
        for memory in (bytearray(pattern(3000)), array.array("d", range(500)), (ctypes.c_int * 100)(*range(100)), page):
            region = self.a.register_memory(memory)
            expected = bytes(memoryview(memory).cast("B"))
            self.assertEqual((region.size, region.window), (len(expected), False))
            self.assertEqual(self.sent(region, len(expected)), expected)
            region.deregister()
        self.assertEqual(self.a._kept, 0)

    @needs_numpy
    def test_numpy_arrays(self):
        values = numpy.arange(12000, dtype=numpy.float16).reshape(100, 120)
        region = self.a.register_memory(values)
        self.assertEqual(self.sent(region, values.nbytes), values.tobytes())
        self.a.put_sync(values[3], self.remote_b)  # a row of what is registered
        self.assertEqual(bytes(memoryview(self.window_b)[:240]), values[3].tobytes())
        with self.assertRaises((BufferError, ValueError)):
            self.a.put_sync(values[:, 3], self.remote_b)  # a column has gaps
        region.deregister()
        with self.assertRaises((BufferError, ValueError)):
            self.a.register_memory(numpy.arange(100)[::2])

    def test_tensors(self):
        data = (ctypes.c_float * 64)(*range(64))
        region = self.a.register_memory(Tensor(data))
        self.assertEqual(self.sent(region, 256), bytes(data))
        region.deregister()
        for wrong in (Tensor(data, device="cuda"), Tensor(data, contiguous=False)):
            with self.assertRaises(BufferError):
                self.a.register_memory(wrong)

    def test_dlpack(self):
        lender = Lender()
        region = self.a.register_memory(lender)
        self.assertEqual(self.sent(region, 60), bytes(lender.floats)[4:])
        region.deregister()
        for wrong in (Lender(device=2), Lender(strides=(10, 1))):
            with self.assertRaises(BufferError):
                self.a.register_memory(wrong)
        self.a.register_memory(Lender(strides=(5, 1))).deregister()

    def test_read_only_memory(self):
        with self.assertRaises(BufferError):
            self.a.register_memory(bytes(100))
        region = self.a.register_memory(pattern(5000), rights=hixl.Rights.READ)
        self.assertEqual(self.sent(region, 5000), pattern(5000))
        with self.assertRaises(BufferError):
            self.a.get(bytes(10), self.remote_b)
        region.deregister()

    def test_the_runtime_holds_what_is_registered(self):
        class Buffer(bytearray):
            pass

        memory = Buffer(pattern(100000))
        life = weakref.ref(memory)
        region = self.a.register_memory(memory)
        address = region.address
        del memory, region
        gc.collect()
        self.assertIsNotNone(life())
        self.a.put_sync(address, self.remote_b, 100000)
        self.assertEqual(bytes(memoryview(self.window_b)[:100000]), pattern(100000))
        with self.assertRaises(BufferError):
            life().extend(b"it may not move")
        again = self.a.register_memory(life())  # the same range: a second reference to one registration
        again.deregister()
        gc.collect()
        self.assertIsNotNone(life())
        self.a.register_memory(life()).deregister()
        self.assertEqual(self.a._kept, 1)
        self.a.deregister(self.a.register_memory(life()))

    def test_deregistered_memory_is_let_go(self):
        class Buffer(bytearray):
            pass

        memory = Buffer(1000)
        life = weakref.ref(memory)
        region = self.a.register_memory(memory)
        del memory
        region.deregister()
        gc.collect()
        self.assertIsNone(life())
        self.assertTrue(region.closed)
        for call in (region.deregister, lambda: self.a.put(region, self.remote_b),
                     lambda: self.a.exchange(region, [1])):
            self.raises("STALE", call)

    def test_a_region_is_not_deregistered_under_a_view(self):
        region = self.a.allocate(8192)
        view = memoryview(region)
        part = view[100:200]
        view.release()
        with self.assertRaisesRegex(BufferError, "1 views"):
            region.deregister()
        part[:5] = b"there"
        part.release()
        region.deregister()
        with self.assertRaises(hixl.Reconnect):
            memoryview(region)

    def test_a_region_that_is_being_deregistered_is_stale(self):
        from hixl import _core
        region, bell = self.a.allocate(8192), _core.Doorbell()
        self.a._deregister_async(bell, 1, region)  # from here on its pages may go at any moment
        batch = hixl.Batch()
        for call in (lambda: self.a.put(region, self.remote_b, 8), lambda: self.a.put_sync(region, self.remote_b, 8),
                     lambda: self.a.get(region, self.remote_b, 8), lambda: batch.put(region, self.remote_b, 8),
                     lambda: memoryview(region), lambda: region.part(0, 8), lambda: self.a.exchange(region, [1]),
                     region.deregister):
            self.raises("STALE", call)
        self.a.quiet()
        self.a._deregistered(region, True)
        self.raises("STALE", self.a.put, region, self.remote_b, 8)

    def test_a_batch_is_a_view_of_its_regions(self):
        region = self.a.allocate(8192)
        batch = hixl.Batch()
        batch.put(region, self.remote_b, 8)
        with self.assertRaisesRegex(BufferError, "1 views"):
            region.deregister()
        self.a.batch_sync(batch)
        batch.clear()
        self.a.put_sync(region, self.remote_b)  # a call is one while it lasts
        region.deregister()

    def test_a_view_outlives_region_and_runtime(self):
        rank = hixl.Runtime()
        region = rank.allocate(4096)
        view = memoryview(region)
        view[:5] = b"there"
        rank.stop()
        del rank, region
        gc.collect()
        self.assertEqual(bytes(view[:5]), b"there")

    def test_a_region_belongs_to_its_runtime(self):
        for call in (lambda: self.b.deregister(self.window_a), lambda: self.b.exchange(self.window_a, [0]),
                     lambda: self.b.copy_in(self.window_a, 0, b"x")):
            with self.assertRaisesRegex(ValueError, "another runtime"):
                call()
        self.assertIs(self.window_a.runtime, self.a)

    def test_allocated_memory(self):
        region = self.a.allocate(10000, tag=7, zero_on_release=True, huge_pages="prefer", rights=hixl.Rights.READ)
        self.assertEqual((region.size, len(region), region.window, region.kind), (10000, 10000, True, 0))
        self.assertGreaterEqual(region.page_bytes, 4096)
        self.assertEqual(bytes(region), bytes(10000))
        region.deregister()
        self.raises("INVALID_ARGUMENT", self.a.allocate, 0)
        self.raises("NO_MEMORY", self.a.allocate, 1 << 50)
        self.raises("UNSUPPORTED", self.a.allocate, 4096, kind="hbm")


class DeviceMemory(PairTest):
    options = {"hbm_bytes": 1 << 20}

    def test_it_has_no_view_but_copies(self):
        region = self.a.allocate(1 << 19, kind=hixl.MemoryKind.HBM)
        self.assertEqual(region.kind, hixl.MemoryKind.HBM)
        with self.assertRaisesRegex(BufferError, "copy_out"):
            memoryview(region)
        self.a.copy_in(region, 100, pattern(1000))
        back = bytearray(1000)
        self.a.copy_out(region, 100, back)
        self.assertEqual(back, pattern(1000))
        self.a.put_sync(region, self.remote_b)
        self.assertEqual(bytes(memoryview(self.window_b)[100:1100]), pattern(1000))
        self.raises("OUT_OF_RANGE", self.a.copy_out, region, region.size, back)
        with self.assertRaises(TypeError):
            self.a.copy_out(region, 0, 12345)
        self.raises("NO_MEMORY", self.a.allocate, 1 << 20, kind="hbm")
        spilled = self.a.allocate(1 << 20, kind="hbm", allow_paging_to_ddr=True)
        self.assertEqual(spilled.spilled_bytes, 1 << 19)
        spilled.deregister()
        region.deregister()


if __name__ == "__main__":
    unittest.main()
