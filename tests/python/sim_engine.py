# SPDX-License-Identifier: Apache-2.0
"""An engine as a connector of vLLM sees one: it makes the two halves, keeps blocks and requests, and calls in vLLM's
order. What it computes are bytes that tell to which request, layer and block they belong."""

import ctypes
import enum
import json
import logging
import subprocess
import sys
import threading
import time
import types

from hixl.integrations.vllm_base import KVConnectorRole
from hixl.integrations.vllm_connector import HixlConnector
from support import TIMEOUT_S, pattern

LAYERS, HEADS, DIM, TOKENS, BLOCKS = 3, 2, 4, 4, 64
BLOCK = TOKENS * HEADS * DIM * 2  # bytes of K, and of V


class Status(enum.Enum):
    WAITING = 0
    WAITING_FOR_REMOTE_KVS = 1
    RUNNING = 2
    LOADED = 3
    FINISHED_LENGTH_CAPPED = 4
    FINISHED_ABORTED = 5


class Tensor:
    """What a connector asks a tensor of torch."""

    def __init__(self, shape, stride=None, seed=0):
        self.shape, self._stride = shape, stride or [1] * len(shape)
        for i in range(len(shape) - 1, 0, -1) if stride is None else ():
            self._stride[i - 1] = self._stride[i] * shape[i]
        size = 2
        for length in shape:
            size *= length
        self.bytes = (ctypes.c_char * size).from_buffer_copy(pattern(size, seed))

    def data_ptr(self):
        return ctypes.addressof(self.bytes)

    def stride(self):
        return tuple(self._stride)

    @staticmethod
    def element_size():
        return 2


class Request:
    def __init__(self, request_id, tokens, params=None):
        self.request_id, self.prompt_token_ids, self.kv_transfer_params = request_id, list(range(tokens)), params
        self.status, self.blocks, self.cached, self.failed = Status.WAITING, [], 0, set()
        self.params = None  # that request_finished() gave


def computed(request_id, layer, value, index):
    """K (0) or V (1) of a request's block."""
    return pattern(BLOCK, hash_of(request_id) + (layer * 2 + value) * 1000 + index)


def hash_of(text):
    return int.from_bytes(text.encode(), "little") * 1000003


class Engine:
    def __init__(self, kv_role, seed=0, **extra):
        config = types.SimpleNamespace(
            kv_transfer_config=types.SimpleNamespace(kv_role=kv_role, engine_id=kv_role,
                                                     kv_connector_extra_config={"timeout": 20.0, **extra}),
            cache_config=types.SimpleNamespace(block_size=TOKENS), parallel_config=types.SimpleNamespace(rank=0))
        self.layers = {f"layer.{i}": Tensor([2, BLOCKS, TOKENS, HEADS, DIM], seed=seed + i) for i in range(LAYERS)}
        self.scheduler = HixlConnector(config, KVConnectorRole.SCHEDULER, None)
        self.worker = HixlConnector(config, KVConnectorRole.WORKER, None)
        self.worker.register_kv_caches(self.layers)
        address = self.worker.get_handshake_metadata()
        if address is not None:
            self.scheduler.set_xfer_handshake_metadata({0: address})
        # Not in order, so that a block's number says nothing of its place.
        self.free, self.requests, self.finished_ids = [i * 37 % BLOCKS for i in range(BLOCKS)], {}, set()

    def add(self, request):
        self.requests[request.request_id] = request
        return request

    def block(self, layer, value, block):
        start = (value * BLOCKS + block) * BLOCK
        return self.layers[f"layer.{layer}"].bytes[start:start + BLOCK]

    def _schedule(self, request):
        count, later = self.scheduler.get_num_new_matched_tokens(request, request.cached)
        needed = -(-len(request.prompt_token_ids) // TOKENS)
        request.blocks, self.free = self.free[:needed], self.free[needed:]
        fresh = request.blocks[request.cached // TOKENS:]
        self.scheduler.update_state_after_alloc(
            request, types.SimpleNamespace(get_unhashed_block_ids=lambda: list(fresh)), count)
        request.status = Status.WAITING_FOR_REMOTE_KVS if later else Status.RUNNING

    def _compute(self, requests):
        for layer, (name, tensor) in enumerate(self.layers.items()):
            self.worker.wait_for_layer_load(name)
            for request in requests:
                for index, block in enumerate(request.blocks):
                    for value in range(2):
                        start = (value * BLOCKS + block) * BLOCK
                        tensor.bytes[start:start + BLOCK] = computed(request.request_id, layer, value, index)
            self.worker.save_kv_layer(name, tensor, None)
        self.worker.wait_for_save()

    def step(self):
        for request in list(self.requests.values()):
            if request.status is Status.WAITING:
                self._schedule(request)
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(None))
        self.worker.start_load_kv(None)
        running = [one for one in self.requests.values() if one.status is Status.RUNNING]
        if running:
            self._compute(running)
        finished, self.finished_ids = self.finished_ids, set()
        sent, received = self.worker.get_finished(finished)
        failed = self.worker.get_block_ids_with_load_errors()
        self.worker.clear_connector_metadata()
        self.scheduler.update_connector_output(types.SimpleNamespace(finished_sending=sent, finished_recving=received))
        for name in received or ():
            request = self.requests[name]
            request.failed = failed & set(request.blocks)
            failed -= request.failed
            if request.status is Status.WAITING_FOR_REMOTE_KVS:
                request.status = Status.LOADED
            else:
                self._free(request)
        assert not failed, f"blocks of nobody: {failed}"
        for name in sent or ():
            self._free(self.requests[name])
        for request in running:
            self.finish(request, Status.FINISHED_LENGTH_CAPPED)

    def finish(self, request, status):
        request.status = status
        later, request.params = self.scheduler.request_finished(request, request.blocks)
        self.finished_ids.add(request.request_id)
        if not later:
            self._free(request)

    def _free(self, request):
        assert not set(request.blocks) & set(self.free), "freed twice"
        self.free += request.blocks
        del self.requests[request.request_id]

    def until(self, condition):
        deadline, nothing = time.monotonic() + TIMEOUT_S, threading.Event()
        while not condition():
            assert time.monotonic() < deadline
            self.step()
            nothing.wait(0.001)

    def close(self):
        self.worker.shutdown()
        self.scheduler.shutdown()


def serve(settings):
    """A prefill engine in a process of its own: commands by its input, answers by its output, a line each."""
    logging.getLogger("hixl").setLevel(logging.ERROR)  # the decode's side is looked at
    engine = Engine("kv_producer", seed=500, **json.loads(settings))
    answer = len(engine.free)
    for line in sys.stdin:
        word, *rest = json.loads(line)
        if word == "compute":
            request = engine.add(Request(*rest, {"do_remote_decode": True}))
            engine.until(lambda: request.status is Status.FINISHED_LENGTH_CAPPED)
            answer = request.params
        elif word == "free":
            engine.until(lambda: len(engine.free) == BLOCKS)
            answer = len(engine.free)
        elif word == "step":
            engine.step()
            answer = len(engine.free)
        print(json.dumps(answer), flush=True)
        engine.step()  # as an engine does as long as there are finished requests: the decode may be here already
    engine.close()


class Other:
    def __init__(self, **settings):
        self.process = subprocess.Popen(
            [sys.executable, "-c", "import sys, sim_engine; sim_engine.serve(sys.argv[1])", json.dumps(settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def close(self):
        if not self.process.stdin.closed:
            self.process.stdin.close()
        code = self.process.wait(TIMEOUT_S)
        self.process.stdout.close()
        return code
