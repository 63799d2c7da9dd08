# SPDX-License-Identifier: Apache-2.0
"""Every way to move bytes, with the bytes compared; atomics, signals, order, groups, and a look inside."""

import array
import pickle
import threading
import unittest

import hixl
from support import PairTest, at_once, needs_numpy, numpy, pattern


class Transfers(PairTest):
    def setUp(self):
        memoryview(self.window_a)[:] = pattern(len(self.window_a), 1)
        memoryview(self.window_b)[:] = bytes(len(self.window_b))

    def test_put_and_get_of_many_sizes(self):
        source, target = memoryview(self.window_a), memoryview(self.window_b)
        for size in (0, 1, 63, 64, 65, 4096, 65537, 1 << 20):
            for remote, offset in ((self.remote_b, 0), (self.remote_b.at(1), 1)):
                size = min(size, len(target) - offset)
                target[:] = bytes(len(target))
                self.a.put(source[:size], remote).wait()
                self.assertEqual(target[offset:offset + size], source[:size])
                self.assertFalse(any(target[offset + size:offset + size + 64]))
        self.b.get_sync(target[:5000], self.remote_a.at(77))
        self.assertEqual(target[:5000], source[77:5077])

    def test_the_three_kinds_of_local_memory(self):
        self.a.put_sync(self.window_a, self.remote_b, 100)  # a region
        self.assertEqual(memoryview(self.window_b)[:100], memoryview(self.window_a)[:100])
        self.a.put_sync(self.window_a.address + 100, self.remote_b.at(100), 100)  # an address
        self.assertEqual(memoryview(self.window_b)[100:200], memoryview(self.window_a)[100:200])
        self.a.put_sync(b"small enough to be copied", self.remote_b)  # anything, up to max_inline
        self.assertEqual(bytes(memoryview(self.window_b)[:25]), b"small enough to be copied")

    def test_signal_comes_after_the_bytes(self):
        for round_number in range(1, 20):
            self.a.put_with_signal(memoryview(self.window_a)[8:50008], self.remote_b.at(8), self.remote_b.at(0),
                                   value=round_number)
            self.assertEqual(self.b.wait_signal(self.window_b, round_number), round_number)
            self.assertEqual(memoryview(self.window_b)[8:50008], memoryview(self.window_a)[8:50008])
            memoryview(self.window_b)[8:50008] = bytes(50000)
        self.a.put_with_signal(b"", self.remote_b, self.remote_b.at(0), op="add", value=5).wait()
        self.assertEqual(self.b.wait_signal(self.window_b, 24, compare=">="), 24)

    def test_batch_of_arrays_of_offsets(self):
        blocks, size = 64, 512
        here = array.array("q", (i * size for i in range(blocks)))
        there = array.array("Q", ((blocks - 1 - i) * size for i in range(blocks)))
        batch = hixl.Batch()
        batch.put_many(self.window_a, self.remote_b, here, there, size)
        self.assertEqual((len(batch), batch.nbytes), (blocks, blocks * size))
        for _ in range(3):  # as often as wanted
            memoryview(self.window_b)[:] = bytes(len(self.window_b))
            self.a.batch(batch).wait()
            for i in range(blocks):
                self.assertEqual(memoryview(self.window_b)[there[i]:there[i] + size],
                                 memoryview(self.window_a)[here[i]:here[i] + size])
        batch.clear()
        batch.put(memoryview(self.window_a)[:10], self.remote_b.at(1000))
        batch.get(memoryview(self.window_a)[20:30], self.remote_b.at(0))
        expected = bytes(memoryview(self.window_b)[:10])
        self.a.batch_with_signal(batch, self.remote_b.at(2000), value=9).wait()
        self.assertEqual(bytes(memoryview(self.window_a)[20:30]), expected)
        self.assertEqual(self.b.wait_signal(self.window_b, 9, offset=2000), 9)
        self.a.batch_sync(batch)

    @needs_numpy
    def test_batch_of_numpy_offsets(self):
        rows = numpy.arange(100, dtype=numpy.int64)
        batch = hixl.Batch()
        batch.get_many(self.window_a.array(), self.remote_b, rows * 64, rows * 128, numpy.full(100, 64))
        self.window_b.array("uint64", 1600)[:] = numpy.arange(1600)
        self.a.batch(batch).wait()
        there = self.window_b.array("uint64", (100, 16))[:, :8]
        self.assertTrue((self.window_a.array("uint64", (100, 8)) == there).all())
        del there

    def test_pieces_and_strides(self):
        view = memoryview(self.window_a)
        self.a.put_gathered([view[0:10], view[100:110], view[50:55]], self.remote_b).wait()
        self.assertEqual(bytes(memoryview(self.window_b)[:25]), bytes(view[0:10]) + bytes(view[100:110]) +
                         bytes(view[50:55]))
        self.b.get_scattered([memoryview(self.window_b)[200:210], memoryview(self.window_b)[300:305]],
                             self.remote_a).wait()
        self.assertEqual(bytes(memoryview(self.window_b)[300:305]), bytes(view[10:15]))
        self.a.put_strided(self.window_a, self.remote_b.at(4096), block_bytes=16, blocks=8, local_stride=64,
                           remote_stride=32).wait()
        self.b.get_strided(memoryview(self.window_b)[8192:], self.remote_a, block_bytes=16, blocks=8, local_stride=16,
                           remote_stride=64).wait()
        for i in range(8):
            expected = bytes(view[64 * i:64 * i + 16])
            self.assertEqual(bytes(memoryview(self.window_b)[4096 + 32 * i:4096 + 32 * i + 16]), expected)
            self.assertEqual(bytes(memoryview(self.window_b)[8192 + 16 * i:8192 + 16 * i + 16]), expected)

    def test_atomics(self):
        word = self.remote_b.at(64)
        self.assertEqual(self.a.fetch_add_sync(word, 5), 0)
        self.assertEqual(self.a.fetch_add_sync(word, 2**64 - 1), 5)
        self.a.atomic_add_sync(word, 1)
        self.assertEqual(self.a.compare_swap_sync(word, 5, 77), 5)
        self.assertEqual(self.a.swap_sync(word, 1), 77)
        posted = self.a.fetch_add(word, 10)
        posted.wait()
        self.assertEqual(posted.value(), 1)
        self.a.atomic_add(word, 1).wait()
        swapped = self.a.compare_swap(word, 12, 3)
        swapped.wait()
        self.assertEqual(swapped.value(), 12)
        self.a.swap(word, 0).wait()
        self.raises("UNALIGNED", self.a.fetch_add_sync, self.remote_b.at(3), 1)

    def test_order(self):
        for _ in range(20):
            self.a.put(memoryview(self.window_a)[:100000], self.remote_b)
        self.a.flush(1)
        self.a.put(memoryview(self.window_a)[:100], self.remote_b)
        fence = self.a.fence(1)
        self.a.put(memoryview(self.window_a)[100:200], self.remote_b)
        self.a.quiet()
        self.assertTrue(fence.done())
        self.assertEqual(memoryview(self.window_b)[:100], memoryview(self.window_a)[100:200])
        self.a.flush_async(1).wait()

    def test_groups(self):
        a, b = at_once(*(lambda rank=rank: rank.create_group([1, 0], links="hccs", tag=4) for rank in (self.a, self.b)))
        self.assertEqual((a.size, a.rank, a.ranks, a.world_rank(0)), (2, 1, (1, 0), 1))
        with self.assertRaises(IndexError):
            a.world_rank(2)
        at_once(a.barrier, b.barrier)
        answers, _ = at_once(lambda: a.exchange(self.window_a), lambda: b.exchange(self.window_b))
        self.assertEqual([one.rank for one in answers], [1, 0])
        a.put_sync(memoryview(self.window_a)[:100], answers[0].regions[0])
        self.assertEqual(memoryview(self.window_b)[:100], memoryview(self.window_a)[:100])
        a.put(self.window_a, answers[0].regions[0]).wait()
        a.flush(1)
        a.close()
        self.raises("INVALID_ARGUMENT", a.barrier)
        b.close()

    def test_barrier_holds_everybody(self):
        order = []

        def first():
            self.a.barrier()
            order.append("after")

        thread = threading.Thread(target=first)
        thread.start()
        order.append("before")
        self.b.barrier()
        thread.join()
        self.assertEqual(order, ["before", "after"])

    def test_remote_values(self):
        copy = pickle.loads(pickle.dumps(self.remote_b))
        self.assertEqual(copy, self.remote_b)
        self.assertEqual({copy, self.remote_b}, {copy})
        self.assertNotEqual(copy.at(1), self.remote_b.at(2))
        self.assertEqual(pickle.loads(pickle.dumps(copy.at(1))) + 1, self.remote_b.at(2))
        self.a.put_sync(b"by copy", copy)
        self.assertEqual(bytes(memoryview(self.window_b)[:7]), b"by copy")

    def test_a_look_inside(self):
        counters = self.a.counters()
        self.a.put(self.window_a, self.remote_b).wait()
        self.assertGreater(self.a.counters()["operations"], counters["operations"])
        self.assertEqual({link["rank"] for link in self.a.links()}, {1})
        self.assertTrue(any(link["chosen"] for link in self.a.links()))
        regions = self.a.dump_regions()
        self.assertIn(self.window_a.size, [region["size"] for region in regions["own"]])
        self.assertEqual(self.a.outstanding(), [])
        self.a.check_access(self.remote_b, 100, hixl.Rights.WRITE)
        self.a.check_access(self.window_a, 100, hixl.Rights.READ)
        self.raises("OUT_OF_RANGE", self.a.check_access, self.remote_b.at(10), self.remote_b.length, hixl.Rights.READ)
        self.assertEqual((self.a.rank, self.a.world_size, repr(self.a)), (0, 2, "Runtime(rank=0, world_size=2)"))

    def test_links_of_one_operation(self):
        self.a.put(self.window_a, self.remote_b, links=[hixl.LinkKind.TCP]).wait()
        self.a.put(self.window_a, self.remote_b, links="tcp").wait()
        self.raises("TRANSPORT_UNAVAILABLE", self.a.put, self.window_a, self.remote_b, links=["ub"])

    def test_exchange_says_who_failed(self):
        answer, = self.a.exchange(self.window_a, [7], timeout=0.1)
        self.assertEqual(answer.rank, 7)
        self.assertEqual(answer.error.code.name, "RANK_OUT_OF_RANGE")
        with self.assertRaises(hixl.FixCall):
            answer.regions
        self.a.prewarm([1])


if __name__ == "__main__":
    unittest.main()
