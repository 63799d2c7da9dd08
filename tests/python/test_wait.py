# SPDX-License-Identifier: Apache-2.0
"""Ways to learn of an end: waiting, asking, callbacks, queues; from many threads; and the GIL meanwhile."""

import gc
import select
import threading
import tracemalloc
import unittest

import hixl
from support import Pair, PairTest, at_once


class Waiting(PairTest):
    def test_a_request_gives_the_same_answer_for_ever(self):
        """P43: whoever asks, a deadline that is over is DEADLINE_EXCEEDED, and no other failure."""
        request = self.a.put(self.window_a, self.remote_b)
        request.wait()
        for _ in range(3):
            self.assertTrue(request.done())
            self.assertIsNone(request.query())
            self.assertIsNone(request.wait(0))
        request.cancel()  # too late: no effect
        failed = self.a.put(self.window_a, self.remote_b, timeout=0)
        for _ in range(3):
            self.raises("DEADLINE_EXCEEDED", failed.wait)
            self.raises("DEADLINE_EXCEEDED", failed.query)
            self.raises("DEADLINE_EXCEEDED", failed.value)
        self.assertEqual(repr(failed), "Request(DEADLINE_EXCEEDED)")

    def test_many_threads_wait_for_one_request(self):
        for _ in range(30):
            request = self.a.put(self.window_a, self.remote_b)
            waits = [request.wait] * 4 + [request.done] * 2
            results = at_once(*waits, lambda: [self.a.put(self.window_a, self.remote_b).wait() for _ in range(5)])
            self.assertEqual(results[:4], [None] * 4)
            self.assertIsNone(request.query())

    def test_all_and_any(self):
        requests = [self.a.put(self.window_a, self.remote_b) for _ in range(20)]
        self.assertIn(hixl.wait_any(requests), range(20))
        hixl.wait_all(requests)
        self.assertTrue(all(request.done() for request in requests))
        hixl.wait_all([])
        self.raises("INVALID_ARGUMENT", hixl.wait_any, [])
        with self.assertRaisesRegex(ValueError, "twice"):
            hixl.wait_all(requests[:1] * 2)
        with self.assertRaises(TypeError):
            hixl.wait_all([requests[0], None])
        late = [self.a.put(self.window_a, self.remote_b, timeout=0)]
        self.raises("DEADLINE_EXCEEDED", hixl.wait_all, late)

    def test_a_wait_that_is_over_is_no_end(self):
        with self.assertRaises(hixl.RetryLater):
            self.b.wait_signal(self.window_b, 2**63, offset=1 << 19, timeout=0.01)
        group = threading.Event()

        def late():
            group.wait(10)
            self.b.barrier()

        thread = threading.Thread(target=late)
        thread.start()
        self.raises("DEADLINE_EXCEEDED", self.a.barrier, None, 0.01)
        group.set()
        self.a.barrier()
        thread.join()

    def test_cancel(self):
        request = self.a.put(self.window_a, self.remote_b)
        request.cancel()
        try:
            request.wait()
        except hixl.Cancelled as error:
            self.assertEqual(error.code.name, "CANCELLED")

    def test_callbacks_run_on_one_thread_of_the_package(self):
        seen, all_seen = [], threading.Event()

        def told(end):
            seen.append((end, threading.current_thread().name))
            if len(seen) == 50:
                all_seen.set()

        for number in range(50):
            self.a.put(self.window_a, self.remote_b, 100, callback=told, user_data=number)
        self.assertTrue(all_seen.wait(30))
        self.assertEqual({name for _, name in seen}, {"hixl-callbacks"})
        self.assertEqual(sorted(end.user_data for end, _ in seen), list(range(50)))
        self.assertEqual({(end.error, end.bytes) for end, _ in seen}, {(None, 100)})

    def test_a_callback_hears_of_failures(self):
        told, heard = [], threading.Event()
        self.a.put(self.window_a, self.remote_b, timeout=0, callback=lambda end: (told.append(end), heard.set()))
        self.assertTrue(heard.wait(30))
        self.assertEqual(told[0].error.code.name, "DEADLINE_EXCEEDED")
        self.assertEqual(told[0].written, ())

    def test_a_callback_that_raises_disturbs_nobody(self):
        heard = threading.Event()
        before = hixl.callback_errors()
        with self.assertLogs("hixl", "ERROR") as logged:
            self.a.put(self.window_a, self.remote_b, callback=lambda end: 1 / 0)
            self.a.put(self.window_a, self.remote_b, callback=lambda end: heard.set())
            self.assertTrue(heard.wait(30))
        self.assertIn("ZeroDivisionError", logged.output[0])
        self.assertEqual(hixl.callback_errors(), before + 1)

    def test_a_callback_may_post_and_wait(self):
        ended, results = threading.Event(), []

        def told(end):
            self.a.put_sync(b"from a callback", self.remote_b)
            self.a.put(self.window_a, self.remote_b.at(100), 64, callback=lambda end: ended.set())
            results.append(bytes(memoryview(self.window_b)[:15]))

        self.a.put(self.window_a, self.remote_b, callback=told)
        self.assertTrue(ended.wait(30))
        self.assertEqual(results, [b"from a callback"])

    def test_a_refused_post_calls_nobody(self):
        """P44: a post gives a Request or raises; no number stands for a failure."""
        from hixl import dispatch
        called = []
        self.raises("NOT_REGISTERED", self.a.put, bytearray(1000), self.remote_b, callback=called.append)
        with self.assertRaises(TypeError):
            self.a.put(self.window_a, self.remote_b, callback=5)
        with self.assertRaises(TypeError):
            self.a.put(self.window_a, self.remote_b, callback=called.append, queue=hixl.CompletionQueue(4))
        self.assertFalse([booked for booked in dispatch._dispatcher._booked.values() if booked[0] == called.append])
        self.a.put(self.window_a, self.remote_b).wait()
        self.assertEqual(called, [])

    def test_queue(self):
        queue = hixl.CompletionQueue(capacity=4)
        self.assertEqual((queue.capacity, queue.in_use, queue.poll()), (4, 0, []))
        poller = select.poll()
        poller.register(queue, select.POLLIN)
        for number in range(4):
            self.a.put(self.window_a, self.remote_b, 10, queue=queue, user_data=2**64 - 1 - number)
        error = self.raises("BUSY", self.a.put, self.window_a, self.remote_b, queue=queue)
        self.assertEqual((error.detail.limit, type(error)), (4, hixl.RetryLater))
        ends = []
        while len(ends) < 4:
            poller.poll()
            ends += queue.poll(most=3)
        self.assertEqual({end.user_data for end in ends}, {2**64 - 1 - number for number in range(4)})
        self.assertEqual(queue.in_use, 0)
        self.raises("DEADLINE_EXCEEDED", queue.wait, 0.01)
        word = self.remote_b.at(64)
        before = self.a.swap_sync(word, 41)
        self.assertIsNotNone(before)
        self.a.fetch_add(word, 1, queue=queue)
        self.assertEqual(queue.wait(10)[0].value, 41)
        for wrong in (0, 2**32, -1, 1.5, "4"):
            with self.assertRaises((TypeError, ValueError, hixl.FixCall)):
                hixl.CompletionQueue(wrong)
        with self.assertRaises(ValueError):
            queue.poll(0)

    def test_a_queue_may_go_before_its_ends(self):
        for _ in range(20):
            queue = hixl.CompletionQueue(4)
            self.a.put(self.window_a, self.remote_b, queue=queue)
            del queue
        self.a.quiet()

    def test_handles_that_are_dropped_give_their_slots_back(self):
        """P49: a Request that nobody keeps frees its slot when its operation ends, with nobody asking."""
        pair = Pair(size=1 << 16, requests_max=8)
        try:
            for late in (None, 0):  # those that succeed, and those that fail
                for _ in range(20):
                    for _ in range(4):
                        pair.a.put(pair.window_a, pair.remote_b, timeout=late)
                    pair.a.quiet()
            self.assertEqual(pair.a.outstanding(), [])
        finally:
            pair.stop()

    def test_a_batch_path_allocates_nothing(self):
        batch = hixl.Batch()
        for i in range(100):
            batch.put(memoryview(self.window_a)[i * 64:i * 64 + 64], self.remote_b.at(i * 128))
        for _ in range(50):
            self.a.batch_sync(batch)
        gc.collect()
        tracemalloc.start()
        try:
            # 200 batches of 100 transfers: what Python has for the loop and its numbers, and nothing for a transfer.
            start, _ = tracemalloc.get_traced_memory()
            for _ in range(200):
                self.a.batch_sync(batch)
            now, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertLess(now - start, 1000)
        self.assertLess(peak - start, 4000)


class Threads(unittest.TestCase):
    def test_python_goes_on_while_the_library_waits(self):
        """A counting thread advances while others are inside each call that waits: the GIL is not held there."""
        pair = Pair(size=1 << 16)
        try:
            count, stop = [0], threading.Event()

            def counting():
                while not stop.is_set():
                    count[0] += 1

            counter = threading.Thread(target=counting)
            counter.start()
            waits = {
                "wait_signal": lambda: pair.a.wait_signal(pair.window_a, 99, timeout=0.2),
                "barrier": lambda: pair.a.barrier(timeout=0.2),
                "queue": lambda: hixl.CompletionQueue(1).wait(0.2),
                "exchange": lambda: pair.a.exchange(pair.window_a, [1], 0.2)[0].regions,
                "group": lambda: pair.a.create_group([0, 1], tag=9, timeout=0.2),
                "create": lambda: hixl.Runtime(rank=1, world_size=2, store="tcp://127.0.0.1:1", connect_timeout=0.2),
            }
            for name, wait in waits.items():
                before = count[0]
                with self.assertRaises(hixl.Error, msg=name):
                    wait()
                # Held through, the counter would move by one switch of threads at most.
                self.assertGreater(count[0] - before, 1000, name)
            stop.set()
            counter.join()
        finally:
            pair.stop()

    def test_posts_from_many_threads(self):
        pair = Pair(size=1 << 20)
        try:
            def work(number):
                here = memoryview(pair.window_a)[number * 4096:number * 4096 + 4096]
                for round_number in range(50):
                    here[:] = bytes([round_number + number]) * 4096
                    pair.a.put(here, pair.remote_b.at(number * 4096)).wait()
                    there = bytes(memoryview(pair.window_b)[number * 4096:number * 4096 + 4096])
                    if there != bytes(here):
                        return False
                return True

            self.assertEqual(at_once(*(lambda n=n: work(n) for n in range(8))), [True] * 8)
        finally:
            pair.stop()

    def test_polled(self):
        with hixl.Store("tcp://127.0.0.1:0") as store:
            ranks = [hixl.Runtime.polled(rank=rank, world_size=2, store=store.url) for rank in range(2)]
            poller = select.poll()
            for rank in ranks:
                poller.register(rank.fileno(), select.POLLIN)
            by_fd = {rank.fileno(): rank for rank in ranks}
            joined = [rank.joined() for rank in ranks]
            while not all(one.done() for one in joined):
                for fd, _ in poller.poll():
                    by_fd[fd].poll()
            for one in joined:
                one.query()
            region = ranks[0].allocate(4096)  # turned while it waits
            region.deregister()
            for rank in ranks:
                rank.stop()
        rank = hixl.Runtime()
        with self.assertRaises(ValueError):
            rank.fileno()
        rank.stop()


if __name__ == "__main__":
    unittest.main()
