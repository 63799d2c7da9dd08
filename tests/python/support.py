# SPDX-License-Identifier: Apache-2.0
"""Ranks for tests: two in one process, which have exchanged a window each; and programs in processes of their own."""

import array
import concurrent.futures
import functools
import os
import subprocess
import sys
import unittest

import hixl

try:
    import numpy
except ImportError:  # tests that need it skip by name
    numpy = None

TIMEOUT_S = 60
needs_numpy = unittest.skipIf(numpy is None, "numpy is not installed here")


def at_once(*calls):
    """Results of calls that wait for each other."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [one.result(TIMEOUT_S) for one in [pool.submit(call) for call in calls]]


@functools.lru_cache(maxsize=64)
def pattern(size, seed=1):
    """Bytes that tell where they belong."""
    return array.array("Q", ((i * 0x9E3779B97F4A7C15 + seed) & (2**64 - 1) for i in range((size + 7) // 8))).tobytes()[
        :size]


class Pair:
    """Two ranks of this process, `a` and `b`, each with a window that the other knows."""

    def __init__(self, size=1 << 20, **options):
        self.store = hixl.Store("tcp://127.0.0.1:0")
        self.a, self.b = at_once(*(lambda rank=rank: hixl.Runtime(rank=rank, world_size=2, store=self.store.url,
                                                                  **options) for rank in range(2)))
        self.window_a, self.window_b = self.a.allocate(size), self.b.allocate(size)
        self.remote_b, self.remote_a = self.exchange(self.window_a, self.window_b)

    def exchange(self, mine_a, mine_b):
        """(what a learned of b, what b learned of a): the first region each."""
        of_b, of_a = at_once(lambda: self.a.exchange(mine_a, [1]), lambda: self.b.exchange(mine_b, [0]))
        return of_b[0].regions[0], of_a[0].regions[0]

    def stop(self):
        at_once(self.a.stop, self.b.stop)
        self.store.close()


class PairTest(unittest.TestCase):
    """Tests that share one pair."""

    options = {}

    @classmethod
    def setUpClass(cls):
        cls.pair = Pair(**cls.options)
        cls.a, cls.b = cls.pair.a, cls.pair.b
        cls.window_a, cls.window_b = cls.pair.window_a, cls.pair.window_b
        cls.remote_a, cls.remote_b = cls.pair.remote_a, cls.pair.remote_b

    @classmethod
    def tearDownClass(cls):
        cls.pair.stop()

    def raises(self, code, call, *arguments, **keywords):
        """The hixl.Error of that code that the call raises."""
        with self.assertRaises(hixl.Error) as caught:
            call(*arguments, **keywords)
        self.assertEqual(caught.exception.code.name, code, str(caught.exception))
        return caught.exception


def run_program(text, *arguments, interpreter=sys.executable, **environment):
    """Runs a program with this package; the completed process."""
    return subprocess.run([interpreter, "-X", "faulthandler", "-c", text, *arguments], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False,
                          # Warnings about the test's own ways are not what is looked for: forks, a busy machine.
                          env={"HIXL_LOG": "error", "PYTHONWARNINGS": "ignore::DeprecationWarning", **os.environ,
                               **environment})
