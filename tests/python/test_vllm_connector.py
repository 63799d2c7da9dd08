# SPDX-License-Identifier: Apache-2.0
"""vLLM's connector between two engines, each in a process of its own: a prefill, and the decode that is tested. Every
block of the decode is compared, those that must not change included."""

import threading
import types
import unittest

import hixl
from hixl import kv
from hixl.integrations import engine_link
from hixl.integrations.paged_cache import paged_cache
from sim_engine import BLOCKS, LAYERS, TOKENS, Engine, Other, Request, Status, Tensor, computed
from support import run_program

# More than two steps, and the last block not full.
WANTED = 2 * engine_link.STEP + 5
PROMPT = WANTED * TOKENS - 1


class Meeting(unittest.TestCase):
    mode = "pull"

    def setUp(self):
        self.other = Other(mode=self.mode)
        self.addCleanup(self.other.close)
        self.engine = self.decode()

    def decode(self, **extra):
        engine = Engine("kv_consumer", mode=self.mode, **extra)
        self.addCleanup(engine.close)
        self.before = {place: engine.block(*place) for place in self.places()}
        return engine

    @staticmethod
    def places():
        return [(layer, value, block) for layer in range(LAYERS) for value in range(2) for block in range(BLOCKS)]

    def asked(self, name, tokens=PROMPT):
        """A request for the decode, whose prompt the prefill has computed."""
        return self.engine.add(Request("d-" + name, tokens, self.other.tell("compute", name, tokens)))

    def after_step(self, number, call):
        """call(sock) once, when so many steps of loads are over."""
        original, left = engine_link.Decode._step, [number]

        def step(decode, sock, *rest):
            if left[0] == 0:
                call(sock)
            left[0] -= 1
            return original(decode, sock, *rest)

        engine_link.Decode._step = step
        self.addCleanup(setattr, engine_link.Decode, "_step", original)

    def check(self, name, blocks, indices, others=True):
        """Those of the request's blocks are the prefill's; all that are not the request's are as before."""
        for layer, value, block in self.places():
            found = self.engine.block(layer, value, block)
            if block in blocks:
                index = blocks.index(block)
                if index in indices:
                    self.assertEqual(found, computed(name, layer, value, index), (layer, value, index))
            elif others:
                self.assertEqual(found, self.before[layer, value, block], (layer, value, block))

    def loaded(self, request):
        self.engine.until(lambda: request.status is Status.LOADED)


class Pulled(Meeting):
    def test_every_block_comes_and_is_freed(self):
        request = self.asked("one")
        self.assertEqual(self.other.tell("step"), BLOCKS - WANTED)
        self.loaded(request)
        self.assertEqual((request.failed, len(request.blocks)), (set(), WANTED))
        self.check("one", request.blocks, range(WANTED))
        self.assertEqual(self.other.tell("free"), BLOCKS)
        self.engine.finish(request, Status.FINISHED_LENGTH_CAPPED)
        self.assertEqual(len(self.engine.free), BLOCKS)

    def test_several_at_once_and_a_prefix_that_is_here(self):
        long, short = self.asked("long", 30 * TOKENS), self.asked("short", 5 * TOKENS)
        short.cached = 2 * TOKENS
        self.loaded(long)
        self.loaded(short)
        self.assertEqual((long.failed, short.failed), (set(), set()))
        self.check("long", long.blocks, range(30), others=False)
        self.check("short", short.blocks, range(2, 5), others=False)
        for layer, value, block in self.places():
            if block not in long.blocks + short.blocks[2:]:
                self.assertEqual(self.engine.block(layer, value, block), self.before[layer, value, block])
        whole = self.asked("whole", 4 * TOKENS)
        whole.cached = 4 * TOKENS  # all of it is here
        self.engine.step()
        self.assertEqual(self.other.tell("free"), BLOCKS)

    def test_a_prefill_that_dies_in_the_middle(self):
        request = self.asked("dying")
        self.after_step(1, lambda sock: self.other.kill())
        with self.assertLogs("hixl", "WARNING"):
            self.loaded(request)
        self.assertEqual(request.failed, set(request.blocks[engine_link.STEP:]))
        self.check("dying", request.blocks, range(engine_link.STEP))
        self.other = Other(mode=self.mode)
        self.addCleanup(self.other.close)
        self.before = {place: self.engine.block(*place) for place in self.places()}
        self.engine.finish(request, Status.FINISHED_ABORTED)
        again = self.asked("again")
        self.loaded(again)
        self.assertEqual(again.failed, set())
        self.check("again", again.blocks, range(WANTED))

    def test_a_prefill_that_dies_at_any_time(self):
        request = self.asked("dying")
        killer = threading.Thread(target=self.other.kill)
        self.after_step(1, lambda sock: killer.start())
        self.loaded(request)
        killer.join()
        self.assertFalse(request.failed & set(request.blocks[:engine_link.STEP]))
        self.check("dying", request.blocks, [i for i in range(WANTED) if request.blocks[i] not in request.failed])

    def test_a_connection_that_breaks_in_the_middle(self):
        """Both live: what has come counts, nothing comes later, and the next request makes the link anew."""
        request = self.asked("cut")
        self.after_step(2, lambda sock: (sock.shutdown(2), self.other.tell("free")))
        with self.assertLogs("hixl", "WARNING"):
            self.loaded(request)
        self.assertEqual(request.failed, set(request.blocks[2 * engine_link.STEP:]))
        self.check("cut", request.blocks, range(2 * engine_link.STEP))
        self.engine.finish(request, Status.FINISHED_ABORTED)
        again = self.asked("again")
        self.loaded(again)
        self.assertEqual(again.failed, set())
        self.check("again", again.blocks, range(WANTED), others=False)

    def test_a_link_that_only_this_side_knows(self):
        self.loaded(self.asked("first", TOKENS))
        link, = self.engine.worker._half._decode._links.values()
        link._met = "nonsense", link._met[1]
        second = self.asked("second", TOKENS)
        self.loaded(second)
        self.assertEqual(second.failed, set())
        self.check("second", second.blocks, range(1), others=False)

    def test_aborted_while_it_loads(self):
        request, inside, go = self.asked("aborted"), threading.Event(), threading.Event()
        self.after_step(1, lambda sock: (inside.set(), go.wait(20)))
        self.engine.until(inside.is_set)
        self.engine.finish(request, Status.FINISHED_ABORTED)
        self.engine.step()
        self.assertEqual(len(self.engine.free), BLOCKS - WANTED)  # bytes are still on their way
        go.set()
        self.engine.until(lambda: len(self.engine.free) == BLOCKS)
        self.assertEqual(request.failed, set())  # of nobody's concern
        self.check("aborted", request.blocks[:2 * engine_link.STEP], range(2 * engine_link.STEP))  # no further step
        self.assertEqual(self.other.tell("free"), BLOCKS)

    def test_aborted_before_it_has_blocks(self):
        self.engine.finish(self.asked("early"), Status.FINISHED_ABORTED)
        self.engine.step()
        self.assertEqual((self.other.tell("free"), len(self.engine.free)), (BLOCKS, BLOCKS))


class Pushed(Pulled):
    mode = "push"

    def test_what_is_given_up_is_not_written_any_more(self):
        prefill = Engine("kv_producer")
        self.addCleanup(prefill.close)
        ready = prefill.add(Request("slow", PROMPT, {"do_remote_decode": True}))
        prefill.until(lambda: ready.params is not None)
        prefill.step()
        original, inside, go, ends = engine_link.move, threading.Event(), threading.Event(), []

        def move(*arguments):
            inside.set()
            go.wait(20)
            ends.append(original(*arguments))
            return ends[0]

        engine_link.move = move
        self.addCleanup(setattr, engine_link, "move", original)
        sockets = []
        self.after_step(0, sockets.append)
        request = self.engine.add(Request("d-slow", PROMPT, ready.params))
        with self.assertLogs("hixl", "WARNING"):
            self.engine.until(inside.is_set)
            sockets[0].shutdown(2)
            self.loaded(request)
            go.set()
            prefill.until(lambda: len(prefill.free) == BLOCKS)
        (whole, error), = ends
        self.assertEqual((whole, isinstance(error, hixl.Error)), ([], True))
        self.assertEqual(request.failed, set(request.blocks))
        self.check("slow", (), ())


class Refused(Meeting):
    def test_blocks_that_nobody_fetches_in_time(self):
        self.other.close()
        self.other = Other(hold=0.001)
        self.addCleanup(self.other.close)
        request = self.asked("late")
        self.assertEqual(self.other.tell("free"), BLOCKS)
        with self.assertLogs("hixl", "WARNING") as logged:
            self.loaded(request)
        self.assertIn("are not held here", "".join(logged.output))
        self.assertEqual(request.failed, set(request.blocks))
        self.check("late", request.blocks, ())

    def test_params_that_lack_blocks(self):
        request = self.asked("short")
        request.kv_transfer_params["remote_block_ids"].pop()
        with self.assertLogs("hixl", "WARNING"):
            self.loaded(request)
        self.assertEqual(request.failed, set(request.blocks))

    def test_aborted_where_it_is_computed(self):
        prefill = Engine("kv_producer")
        self.addCleanup(prefill.close)
        request = prefill.add(Request("gone", PROMPT, {"do_remote_decode": True}))
        prefill._schedule(request)
        prefill.finish(request, Status.FINISHED_ABORTED)
        self.assertEqual((request.params, len(prefill.free)), (None, BLOCKS))

    def test_wrong_options(self):
        for extra in ({"colour": "red"}, {"mode": "throw"}):
            with self.assertRaises(ValueError):
                Engine("kv_consumer", **extra)
        with self.assertRaises(ValueError):
            Engine("kv_user")


class Steps(unittest.TestCase):
    def move(self, answers, timeout_s=20):
        """move() of blocks 0, 1, 2, ... with what each call that begins one answers: a code, or None for success."""
        transfer, left = types.SimpleNamespace(wait=lambda: None, done=lambda: True), list(answers)

        def verb(cache, there, source, target, timeout):
            code = left.pop(0)
            if code is not None:
                raise hixl.Error(hixl.ErrorCode[code])
            return transfer

        return engine_link.move(verb, None, None, [(i, 10 + i) for i in range(3)], timeout_s)

    def test_no_room_is_waited_for(self):
        self.assertEqual(self.move([None, "BUSY", "BUSY", None, None]), ([10, 11, 12], None))
        whole, error = self.move([None, "BUSY"], timeout_s=0)
        self.assertEqual((whole, error.code.name), ([10], "BUSY"))

    def test_nothing_begins_after_an_error(self):
        whole, error = self.move([None, "STALE"])
        self.assertEqual((whole, error.code.name), ([10], "STALE"))


class Caches(unittest.TestCase):
    def layout(self, shape, stride=None):
        cache = paged_cache({"a": Tensor(shape, stride), "b": Tensor(shape, stride)})
        self.assertEqual((cache.layout.layers, cache.layout.dtype_bytes, cache.blocks), (2, 2, 5))
        return cache.layout, cache.tensors

    def test_shapes_and_strides(self):
        apart = [(0, 0), (0, 5 * 3 * 4 * 6 * 2), (1, 0), (1, 5 * 3 * 4 * 6 * 2)]
        self.assertEqual(self.layout([2, 5, 3, 4, 6]), (kv.Layout(2, 4, 6, 3), apart))
        self.assertEqual(self.layout([2, 5, 3, 4, 6], [360, 72, 6, 18, 1]),
                         (kv.Layout(2, 4, 6, 3, order=kv.Order.HEAD_MAJOR), apart))
        together = kv.Layout(2, 4, 6, 3, form=kv.Form.BLOCK_INTERLEAVED)
        self.assertEqual(self.layout([5, 2, 3, 4, 6]), (together, [(0, 0), (1, 0)]))
        self.assertEqual(self.layout([2, 5, 3, 4, 6], [72, 144, 24, 6, 1]), (together, [(0, 0), (1, 0)]))
        self.assertEqual(self.layout([5, 3, 6]), (kv.Layout(2, 1, 6, 3, form=kv.Form.LATENT), [(0, 0), (1, 0)]))

    def test_what_is_refused(self):
        on_card = Tensor([5, 3, 6])
        on_card.device = type("Device", (), {"type": "cuda"})
        with self.assertRaises(BufferError):
            paged_cache({"a": on_card})
        for tensors in ([Tensor([5, 3])], [Tensor([3, 5, 3, 4, 6])], [Tensor([5, 3, 6], [36, 12, 2])], [],
                        [Tensor([5, 3, 6], [1, 5, 15])], [Tensor([5, 3, 6]), Tensor([5, 6, 3])]):
            with self.assertRaises(ValueError):
                paged_cache(dict(enumerate(tensors)))


class Base(unittest.TestCase):
    def test_derives_from_vllm_where_that_is_loaded(self):
        run = run_program("""
import sys, types
base = types.ModuleType("vllm.distributed.kv_transfer.kv_connector.v1.base")
for name in ("KVConnectorBase_V1", "KVConnectorMetadata", "KVConnectorRole"):
    setattr(base, name, type(name, (), {}))
sys.modules[base.__name__] = base
from hixl.integrations import vllm_connector as own
print(issubclass(own.HixlConnector, base.KVConnectorBase_V1), issubclass(own.HixlMetadata, base.KVConnectorMetadata))
""")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "True True\n", ""))

    def test_vllm_is_not_loaded(self):
        run = run_program("import sys, hixl.integrations.vllm_connector; print('vllm' in sys.modules)")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "False\n", ""))


if __name__ == "__main__":
    unittest.main()
