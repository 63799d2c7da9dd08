# SPDX-License-Identifier: Apache-2.0
"""Wrong types, sizes and lifetimes: a typed exception each, never a crash; by name, and at random with a seed."""

import os
import random
import unittest

import hixl
from support import PairTest

TYPED = (TypeError, ValueError, BufferError, OverflowError, hixl.Error)
ROUNDS = int(8000 * float(os.environ.get("HIXL_TEST_SCALE", "1"))) + 100


class BadInput(PairTest):
    def refused(self, kind, call, *arguments, **keywords):
        with self.assertRaises(kind, msg=f"{arguments!r} {keywords!r}") as caught:
            call(*arguments, **keywords)
        self.assertTrue(str(caught.exception))
        return caught.exception

    def test_options(self):
        for name, value, kind in (("rank", -1, ValueError), ("rank", "0", TypeError), ("rank", 2**32, ValueError),
                                  ("world_size", 0, hixl.FixCall), ("store", 5, TypeError),
                                  ("store", "udp://nowhere", hixl.Error), ("store", "a\0b", ValueError),
                                  ("links", "warp", ValueError), ("links", [9], ValueError), ("links", 5.5, TypeError),
                                  ("insecure", 1, TypeError), ("poll", "never", ValueError),
                                  ("default_timeout", -1, ValueError), ("default_timeout", None, TypeError),
                                  ("default_timeout", float("nan"), ValueError), ("lease", 1e300, ValueError),
                                  ("tx_depth", 0, hixl.FixCall), ("degrade", "sideways", ValueError),
                                  ("max_bandwidth", 5, TypeError), ("max_bandwidth", [1], hixl.FixCall),
                                  ("no_such_option", 1, TypeError), ("rdma_service_level", 16, hixl.FixCall),
                                  ("rdma_retry", 256, ValueError), ("rdma_visibility", "soon", ValueError),
                                  ("retry_count", 101, hixl.FixCall)):
            self.refused(kind, hixl.Runtime, **{name: value})
        self.refused(TypeError, hixl.Runtime, 5)
        error = self.refused(hixl.FixCall, hixl.Runtime, bind="0.0.0.0")
        self.assertEqual(error.code.name, "SECURITY_REQUIRED")
        self.refused(hixl.Error, hixl.Store, "tcp://256.0.0.1:0")
        self.refused(TypeError, hixl.Store, None)

    def test_types_are_made_by_the_library(self):
        for one in (hixl.Region, hixl.Request, hixl.Group):
            self.refused(TypeError, one)
        self.refused(TypeError, hixl.RemoteRegion)
        self.refused(ValueError, hixl.RemoteRegion, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0)
        self.refused(TypeError, hixl.Batch, 1)

    def test_transfers(self):
        a, here, there = self.a, self.window_a, self.remote_b
        for arguments in ((), (here,), (here, 5), (here, None), (None, there), (5.5, there), ("text", there),
                          (here, here), (object(), there), (here, there, "4"), (1234, there), (here, there, 1, 2)):
            self.refused(TypeError, a.put, *arguments)
            self.refused(TypeError, a.put_sync, *arguments)
        self.refused(TypeError, a.put, here, there, speed=9)
        self.refused(TypeError, a.put, here, there, local=here)
        self.refused(TypeError, a.put, here, there, queue=5)
        self.refused(TypeError, a.put, here, there, timeout="1")
        self.refused(ValueError, a.put, here, there, timeout=-1)
        self.refused(ValueError, a.put, here, there, user_data=-1)
        self.refused(ValueError, a.put, here, there, len(here) + 1)
        self.refused(ValueError, a.put, here, there, -1)
        self.refused(ValueError, a.put, -5, there, 5)
        self.refused(ValueError, there.at, len(here) + 1)
        self.refused(TypeError, there.at, 1.0)
        self.refused(ValueError, lambda: there.at(8) + 2**64 - 1)
        # An address where nothing is, of a size that would be copied in the call.
        for address in (0, 1, 1234, 2**64 - 4, 2**47 + 5):
            self.refused(hixl.FixCall, a.put, address, there, 8)
            self.refused(hixl.FixCall, a.put_sync, address, there, 8)
            self.refused(hixl.FixCall, a.get, address, there, 8)
            self.refused(hixl.FixCall, a.put_with_signal, address, there, there, size=8)
            self.refused(hixl.Error, a.register_memory, address, 4096)
        self.refused(hixl.FixCall, a.put, b"text", hixl.RemoteAddress(9, 0))
        self.refused(hixl.FixCall, a.put, b"text", hixl.RemoteAddress(1, 5))
        self.refused(BufferError, a.get, b"read-only", there)
        self.refused(ValueError, a.put_with_signal, b"", there, there, op="sub")
        self.refused(TypeError, a.put_with_signal, b"", there, 5)
        self.refused(ValueError, a.put_strided, here, there, block_bytes=64, blocks=2**62, local_stride=64,
                     remote_stride=64)
        self.refused(TypeError, a.put_gathered, here.address, there)
        self.refused(TypeError, a.put_gathered, [5, 6], there)

    def test_batches(self):
        import array
        batch = hixl.Batch()
        fine = array.array("q", [0, 8])
        for columns, kind in (((fine, fine, array.array("q", [8])), ValueError), ((0, 0, 8), TypeError),
                              ((array.array("i", [0, 8]), fine, 8), TypeError), (([0, 8], fine, 8), TypeError),
                              ((array.array("q", [-8]), 0, 8), ValueError), ((fine, array.array("q", [2**40] * 2), 8),
                                                                             ValueError),
                              ((fine, fine, len(self.window_a)), ValueError), ((b"12345678", 0, 8), TypeError),
                              ((array.array("d", [0.0]), 0, 8), TypeError), ((fine, fine, -8), ValueError)):
            self.refused(kind, batch.put_many, self.window_a, self.remote_b, *columns)
        self.refused(TypeError, batch.put_many, self.window_a.address, self.remote_b, fine, fine, 8)
        self.refused(TypeError, batch.put_many, self.window_a, self.remote_b.at(0), fine, fine, 8)
        self.assertEqual(len(batch), 0)
        for wrong in (None, [], "batch"):
            self.refused(TypeError, self.a.batch, wrong)
        batch.put(b"not registered", self.remote_b)
        error = self.refused(hixl.FixCall, self.a.batch, batch)
        self.assertEqual((error.code.name, error.detail.entry), ("NOT_REGISTERED", 0))

    def test_waiting(self):
        self.refused(ValueError, self.a.wait_signal, self.window_a, 1, offset=len(self.window_a))
        self.refused(hixl.FixCall, self.a.wait_signal, self.window_a, 1, offset=3)
        self.refused(hixl.FixCall, self.a.wait_signal, bytearray(8), 1)
        self.refused(hixl.FixCall, self.a.wait_signal, 4096, 1)
        self.refused(ValueError, self.a.wait_signal, self.window_a, 1, compare="<")
        self.refused(ValueError, self.a.wait_signal, bytearray(7), 1)
        self.refused(TypeError, self.a.barrier, 5)
        self.refused(TypeError, self.a.barrier, "01")
        self.refused(ValueError, self.a.barrier, [-1])
        self.refused(hixl.FixCall, self.a.create_group, [])
        self.refused(TypeError, self.a.create_group, None, colour=1)
        self.refused(TypeError, self.a.exchange, [5], [1])
        self.refused(TypeError, self.a.exchange, 5, [1])
        self.refused(ValueError, self.a.flush, -1)
        self.refused(hixl.FixCall, self.a.flush, 9)
        self.refused(TypeError, hixl.wait_all, 5)

    def test_at_random(self):
        """P68: any call with any of these gives a value or a typed exception, and the pair still works."""
        seed = int(os.environ.get("HIXL_TEST_SEED", "0")) or random.randrange(2**32)
        print(f"HIXL_TEST_SEED={seed}", end=" ", flush=True)
        chance = random.Random(seed)
        queue, batch = hixl.CompletionQueue(8), hixl.Batch()
        batch.put(memoryview(self.window_a)[:64], self.remote_b)
        scrap = self.a.register_memory(bytearray(4096))
        values = [None, True, 0, 1, 7, 8, 64, 4096, -1, 2**31, 2**32, 2**63, 2**64 - 1, 2**64, 2**70, 0.0, 0.5, -0.5,
                  float("nan"), float("inf"), "", "set", ">=", "tcp", b"", b"eight by", bytearray(8), bytearray(300),
                  [], [0], [1], [0, 1], (9,), {}, object(), self.window_a, self.window_b, scrap, self.remote_a,
                  self.remote_b, self.remote_b.at(8), self.remote_b.at(3), hixl.RemoteAddress(1, 2**64 - 1), queue,
                  batch, memoryview(self.window_a)[100:228], memoryview(b"abcdefgh")[::2], lambda end: None, Exception,
                  self.window_a.address, self.remote_b.base, self.a, hixl]
        names = [name for name in dir(hixl.Runtime) if not name.startswith("_")
                 and name not in ("stop", "close", "aio", "from_environment", "polled", "poll")]
        names += ["_exchange_async", "_barrier_async", "_quiet_async", "_deregister_async", "_deregistered",
                  "_create_group_async", "_prewarm_async"]
        keywords = ["timeout", "size", "queue", "user_data", "links", "callback", "value", "op", "offset", "compare",
                    "tag"]
        ended = 0
        for _ in range(ROUNDS):
            target = chance.choice([self.a] * 6 + [batch, queue])
            name = chance.choice(names if target is self.a else [n for n in dir(target) if not n.startswith("_")])
            arguments = [chance.choice(values) for _ in range(chance.randrange(6))]
            given = {key: chance.choice(values) for key in chance.sample(keywords, chance.choice((0, 0, 1, 2)))}
            if target is self.a and name not in ("put", "get"):
                given["timeout"] = chance.choice((0, 0.001))
            if name == "wait":
                arguments = [0.001]
            if "deregister" in name and any(one is self.window_a for one in arguments):
                continue  # what the other tests use
            try:
                call = getattr(target, name)
                if callable(call):
                    result = call(*arguments, **given)
                    if isinstance(result, hixl.Request):
                        result.wait(5)
                ended += 1
            except TYPED:
                pass
            except AttributeError as error:
                self.fail(f"{name}{arguments}: {error}")
        self.assertGreater(ended, 10)
        self.a.put_sync(b"still here", self.remote_b)
        self.assertEqual(bytes(memoryview(self.window_b)[:10]), b"still here")


if __name__ == "__main__":
    unittest.main()
