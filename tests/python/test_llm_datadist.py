# SPDX-License-Identifier: Apache-2.0
"""LLM-DataDist between two processes: a prompt that listens, in a process of its own, and a decoder that links with it.
Every tensor is compared whole, what must not change included."""

import ctypes
import subprocess
import sys
import threading
import time
import unittest

import hixl
from llm_datadist import (BlocksCacheKey, CacheDesc, CacheKey, CacheKeyByIdAndIndex, DataType, LayerSynchronizer,
                          LLMClusterInfo, LLMConfig, LLMDataDist, LLMException, LLMRole, LLMStatusCode,
                          TransferWithCacheKeyConfig)
from support import TIMEOUT_S, pattern, run_program

TENSORS, BLOCKS, NUMBERS = 6, 8, 40
BLOCK = NUMBERS * 2  # bytes
DESC = CacheDesc(TENSORS, [BLOCKS, 10, 4], DataType.DT_FLOAT16)
OK = LLMStatusCode.LLM_SUCCESS


class Tensors:
    """Memory of the program."""

    def __init__(self, seed):
        self.buffers = [(ctypes.c_char * (BLOCKS * BLOCK)).from_buffer_copy(pattern(BLOCKS * BLOCK, seed + i))
                        for i in range(TENSORS)]
        self.addrs = [ctypes.addressof(one) for one in self.buffers]

    def fill(self, seed):
        for i, address in enumerate(self.addrs):
            ctypes.memmove(address, pattern(BLOCKS * BLOCK, seed + i), BLOCKS * BLOCK)

    def bytes(self):
        return [bytearray(one.raw) for one in self.buffers]


def started(role, cluster_id, **settings):
    cluster = LLMDataDist(role, cluster_id)
    config = LLMConfig()
    for name, value in settings.items():
        setattr(config, name, value)
    cluster.init(config.generate_options())
    return cluster


def serve():
    """The other process: one block cache, one cache of sequences; commands by its input."""
    cluster = started(LLMRole.PROMPT, 7, listen_ip_info="127.0.0.1:0")
    paged, rows = Tensors(100), Tensors(200)
    cluster.cache_manager.register_blocks_cache(DESC, paged.addrs, BlocksCacheKey(7, 3))
    cluster.cache_manager.register_cache(DESC, rows.addrs, [CacheKey(7, 50 + i) for i in range(BLOCKS)])
    print(cluster.listen_port, flush=True)
    for line in sys.stdin:
        word = line.split()
        if word[0] == "role":
            cluster.switch_role(LLMRole[word[1]])
        elif word[0] == "late":
            late = Tensors(300)
            cluster.cache_manager.register_blocks_cache(DESC, late.addrs, BlocksCacheKey(7, 4))
        elif word[0] == "unregister":
            cluster.cache_manager.unregister_cache(int(word[1]))
        print("".join(bytes(one).hex() for one in paged.bytes()), flush=True)
    cluster.finalize()


class Other:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", "import test_llm_datadist as t; t.serve()"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.info = LLMClusterInfo()
        self.info.remote_cluster_id = 7
        self.info.append_local_ip_info("127.0.0.1", 0)
        self.info.append_remote_ip_info("127.0.0.1", int(self.process.stdout.readline()))

    def tell(self, line):
        """What lies in its block cache afterwards."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        every = bytearray.fromhex(self.process.stdout.readline().strip())
        return [every[i * BLOCKS * BLOCK:(i + 1) * BLOCKS * BLOCK] for i in range(TENSORS)]

    def close(self):
        self.process.stdin.close()
        code = self.process.wait(TIMEOUT_S)
        self.process.stdout.close()
        return code


def part(tensor, block, size=BLOCK):
    return slice(block * BLOCK, block * BLOCK + size)


class Moves(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.other = Other()

    @classmethod
    def tearDownClass(cls):
        assert cls.other.close() == 0

    def setUp(self):
        self.cluster = started(LLMRole.DECODER, 1, sync_kv_timeout=20000)
        self.addCleanup(self.cluster.finalize)
        self.manager = self.cluster.cache_manager
        self.mine = Tensors(1)
        self.paged, self.rows = Tensors(100).bytes(), Tensors(200).bytes()
        self.expected = self.mine.bytes()
        self.cache = self.manager.register_blocks_cache(DESC, self.mine.addrs)
        self.assertEqual(self.cluster.link_clusters([self.other.info], 20000), (OK, [OK]))

    def copied(self, source, pairs, tensors=range(TENSORS), shift=0, size=BLOCK):
        """Expects blocks of theirs in ours, and nothing else."""
        for tensor in tensors:
            for there, here in pairs:
                self.expected[tensor + shift][here * BLOCK:here * BLOCK + size] = (
                    source[tensor][there * BLOCK:there * BLOCK + size])
        self.assertEqual(self.mine.bytes(), self.expected)

    def restore(self):
        """The block cache of the other one, for the other tests."""
        self.mine.fill(100)
        self.other.tell("role DECODER")
        self.manager.push_blocks(BlocksCacheKey(7, 3), self.cache, range(BLOCKS), range(BLOCKS))
        self.assertEqual(self.other.tell("role PROMPT"), self.paged)

    def raises(self, code, call, *arguments, **keywords):
        with self.assertRaises(LLMException) as caught:
            call(*arguments, **keywords)
        self.assertEqual(caught.exception.status_code.name, code, str(caught.exception))
        return caught.exception

    def test_pull_blocks(self):
        key = BlocksCacheKey(7, 3)
        self.manager.pull_blocks(key, self.cache, [5, 0, 3], [1, 7, 2])
        self.copied(self.paged, [(5, 1), (0, 7), (3, 2)])
        self.manager.pull_blocks(key, self.cache, [4], [0], range(1, 2), range(2, 3))
        self.copied(self.paged, [(4, 0)], (2, 3), shift=2)

    def test_pull_cache(self):
        self.manager.pull_cache(CacheKey(7, 52), self.cache, 3)
        self.copied(self.rows, [(2, 3)])
        self.manager.pull_cache(CacheKeyByIdAndIndex(7, 2, 6), self.cache, 0, size=18)
        self.copied(self.rows, [(6, 0)], size=18)
        self.manager.pull_blocks(CacheKey(7, 51), self.cache, [], [5])
        self.copied(self.rows, [(1, 5)])

    def test_what_is_registered_after_the_link(self):
        self.raises("LLM_KV_CACHE_NOT_EXIST", self.manager.pull_blocks, BlocksCacheKey(7, 4), self.cache, [0], [0])
        self.other.tell("late")
        self.manager.pull_blocks(BlocksCacheKey(7, 4), self.cache, [1], [2])
        self.copied(Tensors(300).bytes(), [(1, 2)])
        self.other.tell("unregister 3")
        self.raises("LLM_KV_CACHE_NOT_EXIST", self.manager.pull_blocks, BlocksCacheKey(7, 4), self.cache, [0], [0])

    def test_push(self):
        self.raises("LLM_FEATURE_NOT_ENABLED", self.manager.push_blocks, BlocksCacheKey(7, 3), self.cache, [0], [1])
        self.cluster.switch_role(LLMRole.PROMPT)
        self.other.tell("role DECODER")
        theirs = self.other.tell("show")
        self.manager.push_blocks(BlocksCacheKey(7, 3), self.cache, [2, 0], [0, 6])
        self.manager.push_cache(CacheKeyByIdAndIndex(7, 1, 3), self.cache, 5, range(0, 1), range(2, 3))
        for there, here in ((0, 2), (6, 0)):
            for tensor in range(TENSORS):
                theirs[tensor][part(tensor, there)] = self.expected[tensor][part(tensor, here)]
        for tensor in range(2):
            theirs[tensor + 4][part(tensor, 3)] = self.expected[tensor][part(tensor, 5)]
        self.assertEqual(self.other.tell("role PROMPT"), theirs)
        self.restore()

    def test_layers_as_they_are_computed(self):
        self.cluster.switch_role(LLMRole.PROMPT)
        self.other.tell("role DECODER")
        theirs, asked, go = self.other.tell("show"), [], threading.Semaphore(0)

        class Computed(LayerSynchronizer):
            def synchronize_layer(self, layer_index, timeout_in_millis=None):
                asked.append(layer_index)
                return go.acquire(timeout=TIMEOUT_S)

        configs = [TransferWithCacheKeyConfig(BlocksCacheKey(7, 3), range(0, 2), range(1, 3)),
                   TransferWithCacheKeyConfig(BlocksCacheKey(7, 3), range(2, 3), range(0, 1))]
        task = self.manager.transfer_cache_async(self.cache, Computed(), configs, [4], [7])
        self.assertEqual(task.synchronize(0), LLMStatusCode.LLM_TIMEOUT)
        for _ in range(3):
            go.release()
        self.assertEqual((task.synchronize(), task.get_results(), asked), (OK, [OK, OK], [0, 1, 2]))
        for tensor, shift in ((0, 2), (1, 2), (2, 2), (3, 2), (4, -4), (5, -4)):
            theirs[tensor + shift][part(tensor, 7)] = self.expected[tensor][part(tensor, 4)]
        self.assertEqual(self.other.tell("show"), theirs)

        class Failing(LayerSynchronizer):
            def synchronize_layer(self, layer_index, timeout_in_millis=None):
                return layer_index < 1 or (1 / 0 if raising else False)

        for raising in (False, True):
            with self.assertLogs("hixl", "ERROR") if raising else self.subTest():
                task = self.manager.transfer_cache_async(self.cache, Failing(), configs[:1], [4], [7])
                self.assertEqual(task.synchronize(20000), LLMStatusCode.LLM_FAILED)
        self.raises("LLM_FEATURE_NOT_ENABLED", self.manager.transfer_cache_async, self.cache, Failing(), [(7, [1])])
        self.restore()

    def test_allocated_caches(self):
        cache = self.manager.allocate_cache(DESC)
        self.manager.pull_cache(CacheKey(7, 50), cache, 1)
        self.assertEqual(ctypes.string_at(cache.tensor_addrs[5] + BLOCK, BLOCK), bytes(self.rows[5][:BLOCK]))
        self.manager.deallocate_cache(cache)
        self.raises("LLM_KV_CACHE_NOT_EXIST", self.manager.pull_cache, CacheKey(7, 50), cache, 1)
        more = Tensors(9)
        hidden = self.manager.register_cache(DESC, more.addrs, remote_accessible=False)
        self.manager.pull_cache(CacheKey(7, 50), hidden)  # which is nobody's affair but ours
        self.assertEqual(bytes(more.bytes()[0][:BLOCK]), bytes(self.rows[0][:BLOCK]))

    def test_links(self):
        self.assertEqual(self.cluster.link_clusters([self.other.info], 5000)[1], [LLMStatusCode.LLM_ALREADY_LINK])
        nobody, wrong, empty = LLMClusterInfo(), LLMClusterInfo(), LLMClusterInfo()
        nobody.remote_cluster_id, wrong.remote_cluster_id, empty.remote_cluster_id = 20, 21, 22
        nobody.append_remote_ip_info("127.0.0.1", 1)
        wrong.append_remote_ip_info(*self.other.info.remote_ips[0])
        with self.assertLogs("hixl", "WARNING") as logged:
            code, codes = self.cluster.link_clusters([nobody, wrong, empty], 5000)
        self.assertEqual([one.name for one in (code, *codes)], ["LLM_LINK_FAILED"] * 3 + ["LLM_PARAM_INVALID"])
        self.assertIn("there is cluster 7", "".join(logged.output))
        self.assertEqual(self.cluster.link_clusters([empty] * 17)[0].name, "LLM_CLUSTER_NUM_EXCEED_LIMIT")
        self.raises("LLM_NOT_YET_LINK", self.manager.pull_blocks, BlocksCacheKey(20, 3), self.cache, [0], [0])
        self.assertEqual(self.cluster.unlink_clusters([self.other.info, nobody], 20000)[1],
                         [OK, LLMStatusCode.LLM_NOT_YET_LINK])
        self.raises("LLM_NOT_YET_LINK", self.manager.pull_blocks, BlocksCacheKey(7, 3), self.cache, [0], [0])
        self.assertEqual(self.cluster.link_clusters([self.other.info], 20000), (OK, [OK]))
        self.manager.pull_blocks(BlocksCacheKey(7, 3), self.cache, [0], [0])

    def test_bad_calls(self):
        key, cache = BlocksCacheKey(7, 3), self.cache
        error = self.raises("LLM_PARAM_INVALID", self.manager.pull_blocks, key, cache, [BLOCKS], [0])
        self.assertIsInstance(error.__cause__, hixl.FixCall)
        small = self.manager.register_blocks_cache(CacheDesc(TENSORS, [BLOCKS, 40], DataType.DT_INT8), self.mine.addrs)
        self.raises("LLM_PARAM_INVALID", self.manager.pull_blocks, key, small, [0], [0])
        self.raises("LLM_PARAM_INVALID", self.manager.register_cache, DESC, [4096 * (i + 1) for i in range(TENSORS)])
        for call in (lambda: self.manager.pull_blocks(5, cache, [0], [0]), lambda: self.manager.pull_cache(key, cache),
                     lambda: self.manager.register_cache(5, []), lambda: self.cluster.switch_role(5),
                     lambda: self.manager.pull_blocks(key, 5, [0], [0])):
            with self.assertRaises(TypeError):
                call()
        for call in (lambda: self.manager.register_cache(DESC, [1]), lambda: CacheDesc(0, [1], 1),
                     lambda: CacheDesc(1, [], 1), lambda: CacheDesc(1, [1], 99), lambda: LLMDataDist(9, 1),
                     lambda: self.manager.pull_blocks(key, cache, [0], [0], range(0, 2), range(0, 1)),
                     lambda: self.manager.pull_blocks(key, cache, [0], [0], range(0)),
                     lambda: self.manager.pull_cache(CacheKey(7, 50), cache, 0, size=3),
                     lambda: self.manager.push_cache(CacheKey(7, 50), cache, size=8),
                     lambda: LLMDataDist(LLMRole.MIX, 1).init({"colour": "red"}),
                     lambda: LLMException("fine", LLMStatusCode.LLM_SUCCESS)):
            with self.assertRaises(ValueError):
                call()
        with self.assertRaises(LLMException):
            self.cluster.init({})
        with self.assertRaises(AttributeError):
            LLMConfig().colour = "red"
        fresh = LLMDataDist(LLMRole.MIX, 3)
        fresh.finalize()
        for call in (lambda: fresh.cache_manager, lambda: fresh.link_clusters([]), lambda: fresh.unlink_clusters([])):
            with self.assertRaises(RuntimeError):
                call()


class Deaths(unittest.TestCase):
    def test_a_prompt_that_dies_is_linked_anew(self):
        cluster = started(LLMRole.DECODER, 1, sync_kv_timeout=20000)
        self.addCleanup(cluster.finalize)
        mine = Tensors(1)
        cache = cluster.cache_manager.register_blocks_cache(DESC, mine.addrs)
        for _ in range(2):
            other = Other()
            self.assertEqual(cluster.link_clusters([other.info], 20000), (OK, [OK]))
            cluster.cache_manager.pull_blocks(BlocksCacheKey(7, 3), cache, [0], [0])
            other.process.kill()
            other.close()
            code = OK
            while code != LLMStatusCode.LLM_NOT_YET_LINK:  # what was under way may not know its outcome
                try:
                    cluster.cache_manager.pull_blocks(BlocksCacheKey(7, 3), cache, [0], [0])
                except LLMException as error:
                    code = error.status_code

    def test_decoders_that_leave_leave_nothing(self):
        prompt = started(LLMRole.PROMPT, 7, listen_ip_info="127.0.0.1:0")
        self.addCleanup(prompt.finalize)
        info = LLMClusterInfo()
        info.remote_cluster_id = 7
        info.append_remote_ip_info("127.0.0.1", prompt.listen_port)
        for _ in range(3):
            decoder = started(LLMRole.DECODER, 2)
            self.assertEqual(decoder.link_clusters([info], 20000)[0], OK)
            decoder.finalize()
        deadline, nothing = time.monotonic() + TIMEOUT_S, threading.Event()
        while prompt._guests and not nothing.wait(0.001):  # the prompt has to notice
            self.assertLess(time.monotonic(), deadline)

    def test_the_interpreter_ends_with_an_open_one(self):
        run = run_program("""
import ctypes
from llm_datadist import *
clusters = [LLMDataDist(role, number) for number, role in enumerate(LLMRole)]
clusters[0].init({"listen_ip_info": "127.0.0.1:0"})
clusters[1].init({})
memory = ctypes.create_string_buffer(64)
clusters[0].cache_manager.register_cache(CacheDesc(1, [1, 64], DataType.DT_INT8), [ctypes.addressof(memory)])
info = LLMClusterInfo()
info.remote_cluster_id = 0
info.append_remote_ip_info("127.0.0.1", clusters[0].listen_port)
print(clusters[1].link_clusters([info], 20000)[0].name)
""")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "LLM_SUCCESS\n", ""))


if __name__ == "__main__":
    unittest.main()
