# SPDX-License-Identifier: Apache-2.0
"""The article's DataDist: ranks that know each other by number. Every byte of the target is compared."""

import ctypes
import threading
import unittest

import hixl
import llm_datadist as ldd
from support import TIMEOUT_S, at_once, pattern

LAYERS, HEADS, DIM, TOKENS = 4, 2, 8, 16
TOKEN = HEADS * DIM * 2  # bytes of one token in one tensor
TENSOR = TOKENS * TOKEN
SIZE = LAYERS * 2 * TENSOR
GEOMETRY = {"layer_count": LAYERS, "num_heads": HEADS, "head_dim": DIM, "max_seq_len": TOKENS}


class Ranks(unittest.TestCase):
    def setUp(self):
        self.store = hixl.Store("tcp://127.0.0.1:0")
        self.ranks = [ldd.DataDist() for _ in range(3)]
        at_once(*(lambda rank=rank: self.ranks[rank].init(rank_id=rank, num_ranks=3, store=self.store.url)
                  for rank in range(3)))
        self.memory = [(ctypes.c_char * SIZE).from_buffer_copy(pattern(SIZE, rank)) for rank in range(3)]
        self.pointers = [ctypes.addressof(one) for one in self.memory]

    def tearDown(self):
        at_once(*(rank.finalize for rank in self.ranks))
        self.store.close()

    def register_all(self):
        for rank, pointer in zip(self.ranks, self.pointers):
            self.assertEqual(rank.register_kv_cache(pointer=pointer, **GEOMETRY), 0)

    def expected(self, source, target, layers, tokens):
        wanted = bytearray(pattern(SIZE, target))
        for tensor in range(2 * layers[0], 2 * layers[1]):
            wanted[tensor * TENSOR:tensor * TENSOR + tokens * TOKEN] = pattern(SIZE, source)[
                tensor * TENSOR:tensor * TENSOR + tokens * TOKEN]
        return bytes(wanted)

    def test_f111_the_lines_of_the_article(self):
        self.register_all()
        told = []
        over = threading.Event()

        def kv_transfer_done(error):
            told.append((error, self.memory[1].raw))  # there when it is called
            over.set()

        future = self.ranks[0].put_kv_cache(src_ptr=self.pointers[0], dst_rank=1, layer_range=(0, LAYERS), seq_len=9,
                                            callback=kv_transfer_done)
        self.assertTrue(over.wait(TIMEOUT_S))
        self.assertIsNone(future.result(TIMEOUT_S))
        self.assertEqual(told, [(None, self.expected(0, 1, (0, LAYERS), 9))])
        self.assertEqual(self.memory[2].raw, pattern(SIZE, 2))

    def test_f115_every_range_of_layers(self):
        self.register_all()
        for first in range(LAYERS):
            for last in range(first + 1, LAYERS + 1):
                for tokens in (1, TOKENS):
                    with self.subTest(first=first, last=last, tokens=tokens):
                        ctypes.memmove(self.pointers[2], pattern(SIZE, 2), SIZE)
                        self.ranks[1].put_kv_cache(self.pointers[1], 2, (first, last), tokens).result(TIMEOUT_S)
                        self.assertEqual(self.memory[2].raw, self.expected(1, 2, (first, last), tokens))

    def test_what_is_wrong_is_said_and_moves_nothing(self):
        self.ranks[0].register_kv_cache(self.pointers[0], **GEOMETRY)
        put = self.ranks[0].put_kv_cache
        self.assertEqual(put(self.pointers[0], 1, (0, 1), 1).exception(TIMEOUT_S).status_code,
                         ldd.LLMStatusCode.LLM_KV_CACHE_NOT_EXIST)  # nothing is registered there yet
        self.ranks[1].register_kv_cache(self.pointers[1], **{**GEOMETRY, "head_dim": DIM // 2})
        told = []
        failed = put(self.pointers[0], 1, (0, LAYERS), 4, told.append).exception(TIMEOUT_S)
        self.assertIn("LAYOUT_MISMATCH", str(failed))
        self.assertEqual(told, [failed])
        for arguments in ((0, 1, (0, 1), 1), (self.pointers[0], 3, (0, 1), 1), (self.pointers[0], -1, (0, 1), 1),
                          (self.pointers[0], 1, (0, LAYERS + 1), 1), (self.pointers[0], 1, (2, 2), 1),
                          (self.pointers[0], 1, (-1, 2), 1), (self.pointers[0], 1, (0, 1), TOKENS + 1),
                          (self.pointers[0], 1, (0, 1), 0), (self.pointers[0], 1, (0, 1), True),
                          (self.pointers[0], 1, (0, 1), 1, "no function"), (self.pointers[1], 1, (0, 1), 1),
                          (self.pointers[0], 1, None, 1)):
            with self.subTest(arguments), self.assertRaises((ValueError, TypeError, ldd.LLMException)):
                put(*arguments)
        with self.assertRaises(ldd.LLMException):
            self.ranks[0].register_kv_cache(self.pointers[0], **GEOMETRY)  # twice
        with self.assertRaises(ldd.LLMException):
            self.ranks[0].init(0, 3, store=self.store.url)
        self.assertEqual(self.memory[1].raw, pattern(SIZE, 1))

    def test_each_put_is_told_once_whatever_ends_it(self):
        self.register_all()
        told = []

        def done(error):
            told.append(error)
            raise ValueError("of the program")

        with self.assertLogs("hixl", "ERROR"):
            futures = [self.ranks[0].put_kv_cache(self.pointers[0], 1 + i % 2, (0, LAYERS), TOKENS, done)
                       for i in range(60)]
            self.ranks[0].finalize()
        self.assertEqual(len(told), 60)
        ends = [future.exception(0) for future in futures]
        self.assertCountEqual(map(id, told), map(id, ends))
        self.assertTrue(all(error is None or isinstance(error, ldd.LLMException) for error in told), told)

    def test_a_callback_cannot_finalize_and_calls_after_it_say_so(self):
        self.register_all()
        refused = []

        def finalize(_):
            try:
                self.ranks[0].finalize()
            except RuntimeError as error:
                refused.append(error)

        self.ranks[0].put_kv_cache(self.pointers[0], 1, (0, 1), 1, finalize).result(TIMEOUT_S)
        self.assertEqual(len(refused), 1)
        self.ranks[0].finalize()
        self.ranks[0].finalize()
        with self.assertRaises(RuntimeError):
            self.ranks[0].put_kv_cache(self.pointers[0], 1, (0, 1), 1)
        with self.assertRaises(RuntimeError):
            ldd.DataDist().register_kv_cache(self.pointers[0], **GEOMETRY)


class Alone(unittest.TestCase):
    def test_ranks_that_do_not_come_are_named(self):
        with hixl.Store("tcp://127.0.0.1:0") as store:
            with self.assertRaises(ldd.LLMException) as caught:
                ldd.DataDist().init(0, 2, timeout=0.2, store=store.url)
        self.assertIn("rank 1", str(caught.exception))
        self.assertEqual(caught.exception.status_code, ldd.LLMStatusCode.LLM_LINK_FAILED)

    def test_one_rank_and_wrong_numbers(self):
        with hixl.Store("tcp://127.0.0.1:0") as store:
            alone = ldd.DataDist()
            for rank, ranks in ((1, 1), (-1, 2), (0, 0), ("0", 1), (0, 1 << 20)):
                with self.subTest((rank, ranks)), self.assertRaises((ValueError, TypeError)):
                    alone.init(rank, ranks, store=store.url)
            alone.init(0, 1, store=store.url)
            alone.finalize()


if __name__ == "__main__":
    unittest.main()
