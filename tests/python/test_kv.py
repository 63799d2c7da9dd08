# SPDX-License-Identifier: Apache-2.0
"""hixl.kv: caches of two ranks that lie in different blocks, moved both ways, whole and in parts; what is refused."""

import unittest

import hixl
from hixl import kv
from support import Pair, PairTest, at_once, pattern, run_program

LAYERS, HEADS, DIM, NUMBER = 3, 2, 4, 2
TOKEN = HEADS * DIM * NUMBER  # bytes of one token in one tensor
KEY = kv.CacheKey(model=1, name=7)


class Cache:
    """A cache in memory of its own, with all tensors in a row."""

    def __init__(self, rank, role, block_tokens, blocks, seed, dim=DIM):
        self.dist = kv.DataDist(rank, role)
        self.block, self.tensor = block_tokens * TOKEN, blocks * block_tokens * TOKEN
        self.region = rank.allocate(LAYERS * 2 * blocks * block_tokens * HEADS * dim * NUMBER)
        memoryview(self.region)[:] = pattern(self.region.size, seed)
        self.layout = kv.Layout(LAYERS, HEADS, dim, block_tokens)
        self.id = self.dist.register_cache(KEY, self.layout, blocks, [(self.region, 0)])

    def sequence(self, blocks, layer, value):
        """Bytes of a sequence in one tensor."""
        start = (layer * 2 + value) * self.tensor
        return b"".join(bytes(memoryview(self.region)[start + b * self.block:start + (b + 1) * self.block])
                        for b in blocks)


class Kv(PairTest):
    def setUp(self):
        self.prefill = Cache(self.a, kv.Role.PREFILL, 8, 4, 1)
        self.decode = Cache(self.b, kv.Role.DECODE, 4, 10, 2)
        answers = at_once(lambda: self.prefill.dist.link([1]), lambda: self.decode.dist.link([0]))
        self.assertEqual(answers, [[None], [None]])

    def tearDown(self):
        at_once(self.prefill.dist.close, self.decode.dist.close)

    def check(self, source, target, layers=range(LAYERS), tokens=16):
        for layer in layers:
            for value in range(2):
                self.assertEqual(self.decode.sequence(target, layer, value)[:tokens * TOKEN],
                                 self.prefill.sequence(source, layer, value)[:tokens * TOKEN], (layer, value))

    def test_pull(self):
        remote = self.decode.dist.find(0, KEY)
        self.assertEqual((remote.rank, remote.blocks, kv.Layout(*remote.layout)), (0, 4, self.prefill.layout))
        transfer = self.decode.dist.pull(self.decode.id, remote, source=[3, 0], target=[9, 1, 4, 2])
        transfer.wait(20)
        self.assertTrue(transfer.done())
        self.assertIsNone(transfer.query())
        self.check([3, 0], [9, 1, 4, 2])
        self.assertEqual(transfer.progress(), (LAYERS * 2 * 16 * TOKEN, LAYERS * 2 * 16 * TOKEN, LAYERS, LAYERS))
        transfer.cancel()  # too late

    def test_push_layer_by_layer_and_a_part(self):
        remote = self.prefill.dist.find(1, KEY)
        before = bytes(self.decode.region)
        transfer = self.prefill.dist.push(self.prefill.id, remote, [2], [5, 6], layers=(1, 3), tokens=(0, 5),
                                          layered=True)
        self.raises("BUSY", transfer.query)
        for layer in (2, 1):
            transfer.ready(layer)
        transfer.wait(20)
        self.check([2], [5, 6], range(1, 3), 5)
        self.assertEqual(bytes(self.decode.region)[:2 * self.decode.tensor], before[:2 * self.decode.tensor])
        self.assertEqual(transfer.progress()[2:], (2, 2))

    def test_only_what_is_new(self):
        remote = self.prefill.dist.find(1, KEY)
        moved = []
        for tokens in (5, 7, 16):
            transfer = self.prefill.dist.push(self.prefill.id, remote, [0, 1], [0, 1, 2, 3], tokens=(0, tokens),
                                              sequence=9)
            transfer.wait(20)
            moved.append(transfer.progress()[0] // (LAYERS * 2 * TOKEN))
        self.prefill.dist.rewind(9, 15)
        self.prefill.dist.push(self.prefill.id, remote, [0, 1], [0, 1, 2, 3], sequence=9).wait(20)
        self.assertEqual(moved, [5, 2, 9])
        self.check([0, 1], [0, 1, 2, 3])

    def test_roles_and_links(self):
        mine, theirs = self.prefill.dist, self.decode.dist
        remote = mine.find(1, KEY)
        self.raises("WRONG_ROLE", mine.pull, self.prefill.id, remote, [5, 6], [0])
        self.assertEqual((mine.role, theirs.role, mine.link_state(1)), (kv.Role.PREFILL, kv.Role.DECODE,
                                                                       kv.LinkState.LINKED))
        mine.switch_role(kv.Role.BOTH)
        theirs.switch_role(kv.Role.BOTH)
        mine.pull(self.prefill.id, remote, [5, 6], [0]).wait(20)
        self.check([0], [5, 6], tokens=8)
        self.assertEqual(mine.link([1], timeout=5), [None])  # linked already
        mine.unlink(1)
        self.assertEqual(mine.link_state(1), kv.LinkState.NONE)
        self.raises("NOT_LINKED", mine.find, 1, KEY)

    def test_what_is_refused(self):
        dist, remote = self.decode.dist, self.decode.dist.find(0, KEY)
        mine, region = self.decode.id, self.decode.region
        self.raises("CACHE_UNKNOWN", dist.find, 0, (1, 8))
        self.raises("ALREADY_EXISTS", dist.register_cache, KEY, self.decode.layout, 10, [(region, 0)])
        self.raises("OUT_OF_RANGE", dist.register_cache, (1, 9), self.decode.layout, 11, [(region, 0)])
        self.raises("OUT_OF_RANGE", dist.pull, mine, remote, [4], [0, 1])
        self.raises("CACHE_STALE", dist.pull, (0, 10**15), remote, [0], [0, 1])
        self.raises("BUSY", kv.DataDist, self.b)
        for call in (lambda: dist.register_cache(KEY, (1, 2), 1, [(region, 0)]), lambda: kv.DataDist(5),
                     lambda: dist.register_cache((1, 9), self.decode.layout, 1, [region]),
                     lambda: dist.register_cache((1, 9), self.decode.layout, 1, 5),
                     lambda: dist.pull(mine, 5, [0], [0]), lambda: dist.pull(mine, remote, "ab", [0]),
                     lambda: dist.pull(mine, remote, [0], [0, 1], layered=1), lambda: dist.link("1"),
                     lambda: dist.find(0, 5), lambda: kv.RemoteCache(), lambda: kv.Transfer()):
            with self.assertRaises(TypeError):
                call()
        for call in (lambda: kv.DataDist(self.b, role=4), lambda: dist.pull(mine, remote, [-1], [0]),
                     lambda: dist.pull(mine, remote, [0], [0, 1], tokens=(1, 2, 3)),
                     lambda: dist.register_cache((-1, 9), self.decode.layout, 1, [(region, 0)]),
                     lambda: dist.register_cache((1, 9), self.decode.layout._replace(form=4), 1, [(region, 0)]),
                     lambda: dist.register_cache((1, 9), self.decode.layout, 1, [(self.window_a, 0)])):
            with self.assertRaises(ValueError):
                call()
        self.prefill.dist.unregister_cache(self.prefill.id)
        transfer = None
        with self.assertRaises(hixl.Reconnect) as caught:
            transfer = dist.pull(mine, remote, [0], [0, 1])
            transfer.wait(20)
        self.assertEqual(caught.exception.code.name, "CACHE_STALE")

    def test_another_shape(self):
        other = self.a.allocate(1 << 16)
        layout = kv.Layout(LAYERS, HEADS, DIM * 2, 8)
        self.prefill.dist.register_cache((2, 0), layout, 4, [(other, 0)])
        remote = self.decode.dist.find(0, (2, 0))
        error = self.raises("LAYOUT_MISMATCH", self.decode.dist.pull, self.decode.id, remote, [0], [0, 1])
        self.assertIn(f"{HEADS} KV heads of {DIM * 2}", str(error))


class Ends(unittest.TestCase):
    def test_objects_may_go_in_any_order(self):
        pair = Pair(size=4096)
        dist = kv.DataDist(pair.a)
        pair.stop()
        with self.assertRaises(hixl.Error):
            dist.find(1, KEY, 1)
        del pair
        dist.close()
        self.assertIsInstance(dist.link([1], 1)[0], hixl.Error)
        del dist

    def test_the_interpreter_ends_with_an_open_one(self):
        run = run_program("import hixl\nrank = hixl.Runtime()\ndist = hixl.kv.DataDist(rank)\nprint('ends')")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "ends\n", ""))


if __name__ == "__main__":
    unittest.main()
