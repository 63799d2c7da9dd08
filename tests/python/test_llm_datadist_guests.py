# SPDX-License-Identifier: Apache-2.0
"""LLM-DataDist from the inside: what becomes of registrations and links when one of several does not do as asked."""

import threading
import unittest

import hixl
from hixl import _meeting as meeting
from llm_datadist import (BlocksCacheKey, LayerSynchronizer, LLMClusterInfo, LLMException, LLMRole, LLMStatusCode,
                          TransferWithCacheKeyConfig)
from support import TIMEOUT_S
from test_llm_datadist import DESC, OK, Tensors, started


class Held:
    """Instead of a lock: whoever takes it says so, and waits."""

    def __init__(self):
        self.taken, self.go = threading.Event(), threading.Event()

    def __enter__(self):
        self.taken.set()
        assert self.go.wait(TIMEOUT_S)

    def __exit__(self, *_):
        pass


class Guests(unittest.TestCase):
    """A prompt and a decoder of one process, so that the prompt's guest can be looked at."""

    def setUp(self):
        self.prompt = started(LLMRole.PROMPT, 7, listen_ip_info="127.0.0.1:0")
        self.addCleanup(self.prompt.finalize)
        self.info = LLMClusterInfo()
        self.info.remote_cluster_id = 7
        self.info.append_remote_ip_info("127.0.0.1", self.prompt.listen_port)
        self.decoder = started(LLMRole.DECODER, 2)
        self.addCleanup(self.decoder.finalize)
        self.assertEqual(self.decoder.link_clusters([self.info], 20000)[0], OK)
        self.guest, = self.prompt._guests
        self.memory = Tensors(1)

    def test_memory_is_not_given_back_while_a_guest_ends(self):
        cache = self.prompt.cache_manager.register_blocks_cache(DESC, self.memory.addrs, BlocksCacheKey(7, 3))
        ending = self.guest._ending = Held()
        self.addCleanup(ending.go.set)
        closing = threading.Thread(target=self.guest.close)
        closing.start()
        self.assertTrue(ending.taken.wait(TIMEOUT_S))
        self.assertIn(self.guest, self.prompt._guests)
        ending.go.set()
        closing.join()
        self.assertNotIn(self.guest, self.prompt._guests)
        self.prompt.cache_manager.unregister_cache(cache.cache_id)
        self.guest.remove(cache.cache_id)  # what a call that was under way meanwhile meets

    def test_a_cache_that_a_guest_cannot_have_is_nowhere(self):
        def add(*_):
            raise meeting.fail("MEMLOCK_LIMIT", "as if")

        self.guest.add = add
        with self.assertRaises(LLMException):
            self.prompt.cache_manager.register_blocks_cache(DESC, self.memory.addrs, BlocksCacheKey(7, 3))
        self.assertEqual((self.prompt._caches, self.prompt._own._shown), ({}, {}))

    def test_one_that_does_not_end_leaves_no_other(self):
        def close():
            raise meeting.fail("HELD", "as if")

        closed, self.guest.close = self.guest.close, close
        own, runtime = self.prompt, self.prompt._own.runtime
        with self.assertRaises(LLMException):
            own.finalize()
        with self.assertRaises(hixl.Error) as caught:
            runtime.allocate(64)
        self.assertEqual(caught.exception.code, hixl.ErrorCode.STOPPED)
        closed()

    def test_more_links_than_a_datadist_has_by_default(self):
        for _ in range(65):
            self.assertEqual(self.decoder.unlink_clusters([self.info], 20000)[0], OK)
            self.assertEqual(self.decoder.link_clusters([self.info], 20000)[0], OK)

    def test_a_synchronizer_that_wants_to_exit(self):
        class Exits(LayerSynchronizer):
            def synchronize_layer(self, layer_index, timeout_in_millis=None):
                raise SystemExit

        theirs = Tensors(2)
        self.decoder.switch_role(LLMRole.MIX)
        self.prompt.switch_role(LLMRole.MIX)
        self.prompt.cache_manager.register_blocks_cache(DESC, theirs.addrs, BlocksCacheKey(7, 3))
        cache = self.decoder.cache_manager.register_blocks_cache(DESC, self.memory.addrs)
        with self.assertLogs("hixl", "ERROR"):
            task = self.decoder.cache_manager.transfer_cache_async(
                cache, Exits(), [TransferWithCacheKeyConfig(BlocksCacheKey(7, 3))], [0], [0])
            self.assertEqual(task.synchronize(20000), LLMStatusCode.LLM_FAILED)


if __name__ == "__main__":
    unittest.main()
