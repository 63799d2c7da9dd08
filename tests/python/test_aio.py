# SPDX-License-Identifier: Apache-2.0
"""asyncio: awaits without a thread, cancellation, many at once, several event loops."""

import asyncio
import gc
import select
import threading
import unittest
import warnings

import hixl
from support import PairTest, at_once, pattern, run_program

# As a user whose pipes have as many pages as the system lets him have: the next one is small.
SMALL_PIPES = '''
import fcntl, os, sys
import hixl
from hixl import _core
F_SETPIPE_SZ, F_GETPIPE_SZ = 1031, 1032
rank = hixl.Runtime()
try:
    os.setuid(100000 + os.getpid())  # nobody else's
except OSError:
    sys.exit(print("only root can become another user") or 77)
pipes = []
while len(pipes) < 128:
    pipes.append(os.pipe())
    if fcntl.fcntl(pipes[-1][0], F_GETPIPE_SZ) < 65536:
        break
    try:
        fcntl.fcntl(pipes[-1][0], F_SETPIPE_SZ, 1 << 20)
    except OSError:
        pass
bell = _core.Doorbell()
size = fcntl.fcntl(bell.fileno(), F_GETPIPE_SZ)
if size >= 65536:
    sys.exit(print("this system has no limit of a user's pipes") or 77)
begun = 0
try:
    while True:
        rank._quiet_async(bell, begun)
        begun += 1
        rank.quiet()  # no more than a few are open at a time; they ring, and nobody looks
except hixl.RetryLater as error:
    assert error.detail.limit == begun, error
assert 0 < begun * 8 <= size, begun
rank.quiet()
assert sorted(ticket for ticket, _ in bell.take()) == list(range(begun))
rank._quiet_async(bell, begun)
print("all have come")
'''


class Aio(PairTest):
    def run_async(self, coroutine):
        return asyncio.run(asyncio.wait_for(coroutine, 60))

    def test_transfers(self):
        async def story():
            memoryview(self.window_a)[:] = pattern(len(self.window_a))
            threads = threading.active_count()
            await self.a.aio.put(self.window_a, self.remote_b)
            self.assertEqual(bytes(self.window_b), bytes(self.window_a))
            await self.b.aio.get(memoryview(self.window_b)[:100], self.remote_a.at(500))
            self.assertEqual(memoryview(self.window_b)[:100], memoryview(self.window_a)[500:600])
            batch = hixl.Batch()
            batch.put(memoryview(self.window_a)[:10], self.remote_b.at(1000))
            await self.a.aio.batch(batch)
            await self.a.aio.put_with_signal(b"", self.remote_b, self.remote_b.at(0), value=3)
            self.assertEqual(await self.a.aio.fetch_add(self.remote_b, 4), 3)
            self.assertEqual(await self.a.aio.compare_swap(self.remote_b, 7, 8), 7)
            await self.a.aio.flush(1)
            await self.a.aio.quiet()
            self.assertEqual(threading.active_count(), threads)

        self.run_async(story())

    def test_any_request_can_be_awaited(self):
        async def story():
            request = self.a.put(self.window_a, self.remote_b)
            await request
            await request
            late = self.a.put(self.window_a, self.remote_b, timeout=0)
            for _ in range(2):
                with self.assertRaises(hixl.RetryLater):
                    await late
            await asyncio.gather(*(self.a.put(self.window_a, self.remote_b, 100) for _ in range(300)))

        self.run_async(story())

    def test_many_at_once(self):
        async def one(number):
            await self.a.aio.put(memoryview(self.window_a)[number * 64:number * 64 + 64],
                                 self.remote_b.at(number * 64))

        async def story():
            memoryview(self.window_a)[:] = pattern(len(self.window_a), 7)
            await asyncio.gather(*(one(number) for number in range(2000)))
            self.assertEqual(bytes(self.window_b)[:2000 * 64], bytes(self.window_a)[:2000 * 64])

        self.run_async(story())

    def test_together(self):
        async def story():
            a, b = self.a.aio, self.b.aio
            await asyncio.gather(a.barrier(), b.barrier())
            of_b, of_a = await asyncio.gather(a.exchange(self.window_a, [1]), b.exchange([self.window_b], [0]))
            self.assertEqual((of_b[0].regions[0], of_a[0].regions[0]), (self.remote_b, self.remote_a))
            group, other = await asyncio.gather(a.create_group([0, 1]), b.create_group([0, 1]))
            self.assertEqual(group.ranks, (0, 1))
            await asyncio.gather(a.barrier_of(group), b.barrier_of(other))
            await asyncio.gather(a.prewarm([1]), b.prewarm([0]))
            region = self.a.allocate(4096)
            await a.deregister(region)
            self.assertTrue(region.closed)
            with self.assertRaises(hixl.Reconnect):
                await a.deregister(region)
            group.close()
            other.close()

        self.run_async(story())

    def test_errors(self):
        async def story():
            with self.assertRaises(hixl.FixCall):
                await self.a.aio.put(bytearray(1000), self.remote_b)
            with self.assertRaises(TypeError):
                await self.a.aio.put(self.window_a)
            with self.assertRaises(hixl.RetryLater) as caught:
                await self.a.aio.put(self.window_a, self.remote_b, timeout=0)
            self.assertEqual(caught.exception.code, hixl.ErrorCode.DEADLINE_EXCEEDED)
            with self.assertRaises(hixl.RetryLater) as caught:
                await self.a.aio.barrier(timeout=0.01)
            self.assertEqual(caught.exception.detail.missing, (1,))
            await asyncio.gather(self.a.aio.barrier(), self.b.aio.barrier())

        self.run_async(story())

    def test_a_cancelled_await_ends_after_its_operation(self):
        async def story():
            for _ in range(50):
                task = asyncio.ensure_future(self.a.aio.put(self.window_a, self.remote_b))
                await asyncio.sleep(0)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertEqual(self.a.outstanding(), [])  # ended, and its slot is free
            with self.assertRaises(asyncio.TimeoutError):  # the barrier has no cancel: it ends by its own deadline
                await asyncio.wait_for(self.a.aio.barrier(timeout=0.05), 0.01)

        self.run_async(story())
        self.pair.a.quiet()

    def test_a_cancel_in_the_turn_of_the_end(self):
        from hixl import aio

        async def story(begin, queue):
            task = asyncio.ensure_future(begin())
            await asyncio.sleep(0)
            select.select([getattr(aio.watcher(), queue)], [], [])  # the end is there, and has not been looked at
            asyncio.get_running_loop().call_soon(task.cancel)  # before the event loop looks, in the same turn
            for _ in range(8):
                await asyncio.sleep(0)
            self.assertTrue(task.done())
            self.assertTrue(task.cancelled())

        for begin, queue in ((lambda: self.a.aio.put(self.window_a, self.remote_b), "queue"),
                             (lambda: self.a.aio.quiet(), "bell")):
            loop = asyncio.new_event_loop()  # not asyncio.run(), which would wait for a task that hangs
            try:
                loop.run_until_complete(story(begin, queue))
            finally:
                loop.close()

    def test_a_doorbell_has_room_for_what_is_open(self):
        run = run_program(SMALL_PIPES)
        if run.returncode == 77:
            self.skipTest(run.stdout.strip())
        self.assertEqual((run.returncode, run.stdout), (0, "all have come\n"), run.stderr)

    def test_event_loops_one_after_the_other(self):
        from hixl import aio

        async def story():
            await self.a.aio.put(self.window_a, self.remote_b)
            await self.a.put(self.window_a, self.remote_b)

        for _ in range(5):
            self.run_async(story())
        gc.collect()
        self.assertEqual(len(aio._watchers), 0)

    def test_an_event_loop_may_be_closed_over_open_calls(self):
        import os
        from hixl import _core

        def closed_over(count):
            loop = asyncio.new_event_loop()

            async def begin():
                for _ in range(count):
                    loop.create_task(self.a.aio.exchange(self.window_a, [1]))
                    loop.create_task(self.a.aio.put(self.window_a, self.remote_b))
                await asyncio.sleep(0)

            loop.run_until_complete(begin())
            loop.set_exception_handler(lambda *_: None)
            loop.close()

        def descriptors():
            gc.collect()
            _core.Doorbell()  # what was left over is looked at whenever one is made
            return len(os.listdir("/proc/self/fd"))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            closed_over(1)
            self.b.exchange(self.window_b, [0])
            self.a.quiet()
            before = descriptors()
            for _ in range(5):
                closed_over(3)
                for _ in range(3):
                    self.b.exchange(self.window_b, [0])
            at_once(self.a.barrier, self.b.barrier)
            self.a.quiet()
            self.assertLessEqual(descriptors(), before)

    def test_outside_of_an_event_loop(self):
        with self.assertRaises(RuntimeError):
            self.a.aio

    def test_a_polled_rank_in_the_event_loop(self):
        async def story():
            rank = hixl.Runtime.polled()
            loop = asyncio.get_running_loop()
            loop.add_reader(rank.fileno(), rank.poll)
            await rank.aio.joined()
            region = rank.allocate(4096)
            await rank.aio.deregister(region)
            await rank.aio.stop()
            loop.remove_reader(rank.fileno())

        self.run_async(story())


if __name__ == "__main__":
    unittest.main()
