# SPDX-License-Identifier: Apache-2.0
"""DataDist: the article's first lines. Ranks of one job know each other by number, each names a cache by its pointer
and geometry, and puts layers of a sequence into the cache that another rank registered under the same number.

    dist = DataDist()
    dist.init(rank_id=0, num_ranks=8)
    dist.register_kv_cache(pointer=address, layer_count=32, num_heads=32, head_dim=128, max_seq_len=4096)
    dist.put_kv_cache(src_ptr=address, dst_rank=1, layer_range=(0, 32), seq_len=900, callback=done)"""

import concurrent.futures
import logging
import threading

import hixl
from hixl import kv

from .values import number
from .words import LLMException, LLMStatusCode, told

PUTS_AT_ONCE = 16  # each waits for its end in a thread of its own; more wait for a thread
CACHES_MAX = 32

log = logging.getLogger("hixl")


def address_of(pointer):
    """An address as a number, of a tensor that tells its own, or of ctypes' pointers."""
    pointer = pointer.data_ptr() if hasattr(pointer, "data_ptr") else getattr(pointer, "value", pointer)
    return number(pointer, 1, 2**64 - 1, "the pointer")


class DataDist:
    """Owner: the program; finalize() ends it. Threads: any call from any thread."""

    def __init__(self):
        self._lock = threading.Lock()
        self._inside = threading.local()  # of a callback
        self._runtime = self._dist = self._threads = None
        self._caches, self._others = {}, {}

    def init(self, rank_id, num_ranks, timeout=30, **options):
        """Meets the other ranks and returns when all have come; LLMException: which of them did not in `timeout`
        seconds. `options`: of hixl.Runtime, before those of the environment (HIXL_STORE, HIXL_LINKS, ...)."""
        number(num_ranks, 1, 65535, "num_ranks")
        number(rank_id, 0, num_ranks - 1, "rank_id")
        with told(), self._lock:
            if self._runtime is not None:
                raise LLMException("init() has been called already")
            options = {**hixl.options_from_environment(), **options, "rank": rank_id, "world_size": num_ranks}
            runtime = hixl.Runtime(**options)
            try:
                dist = kv.DataDist(runtime, caches_max=CACHES_MAX, links_max=max(1, num_ranks - 1))
                others = [rank for rank in range(num_ranks) if rank != rank_id]
                failed = {rank: error for rank, error in zip(others, dist.link(others, timeout)) if error is not None}
                if failed:
                    raise LLMException(f"no link with {', '.join(f'rank {rank}: {failed[rank]}' for rank in failed)}",
                                       LLMStatusCode.LLM_LINK_FAILED)
            except BaseException:
                runtime.stop()
                raise
            self._threads = concurrent.futures.ThreadPoolExecutor(PUTS_AT_ONCE, "llm_datadist")
            self._runtime, self._dist = runtime, dist

    def _inited(self):
        if self._dist is None:
            raise RuntimeError("init() has to be called before")
        return self._dist

    def register_kv_cache(self, pointer, layer_count, num_heads, head_dim, max_seq_len, dtype_bytes=2):
        """K of the first layer, its V, K of the second, ... from `pointer` on, each [max_seq_len, num_heads, head_dim].
        The memory stays the program's. Gives the number by which other ranks put into it: 0, 1, 2, ..."""
        layout = kv.Layout(layer_count, num_heads, head_dim, max_seq_len, dtype_bytes)
        for name, value in layout._asdict().items():
            number(value, 0, 2**32 - 1, name)
        address = address_of(pointer)
        with told(), self._lock:
            dist, name = self._inited(), len(self._caches)
            if address in self._caches:
                raise LLMException(f"the pointer {address:#x} is registered already", LLMStatusCode.LLM_PARAM_INVALID)
            size = layer_count * 2 * max_seq_len * num_heads * head_dim * dtype_bytes
            region = self._runtime.register_memory(address, size)
            try:
                cache = dist.register_cache(kv.CacheKey(name=name), layout, 1, [(region, 0)])
            except BaseException:
                region.deregister()
                raise
            self._caches[address] = name, cache, layout
            return name

    def put_kv_cache(self, src_ptr, dst_rank, layer_range, seq_len, callback=None):
        """Puts the first `seq_len` tokens of the layers up to and without layer_range[1]. Returns at once, with a
        Future whose end is None when all bytes are there, or an LLMException; callback(error) gets the same, once, in a
        thread of its own, also when finalize() ends it. ValueError, LLMException: what is wrong here."""
        with self._lock:
            self._inited()
            known = self._caches.get(address_of(src_ptr))
            if known is None:
                raise LLMException(f"no cache is registered at {address_of(src_ptr):#x}",
                                   LLMStatusCode.LLM_KV_CACHE_NOT_EXIST)
            first, last = layer_range
            number(last, 1, known[2].layers, "the end of layer_range")
            number(first, 0, last - 1, "the begin of layer_range")
            number(seq_len, 1, known[2].block_tokens, "seq_len")
            number(dst_rank, 0, self._runtime.world_size - 1, "dst_rank")
            if callback is not None and not callable(callback):
                raise TypeError("callback must be a function")
            return self._threads.submit(self._put, self._dist, known, dst_rank, (first, last), (0, seq_len), callback)

    def _put(self, dist, known, rank, layers, tokens, callback):
        error = None
        try:
            with told():
                self._begin(dist, known, rank, layers, tokens).wait()
        except Exception as failure:  # whatever it is, the callback hears of it
            error = failure
        if callback is not None:
            self._inside.callback = True
            try:
                callback(error)
            except Exception:
                log.exception("llm_datadist: the callback of a put failed")
            finally:
                self._inside.callback = False
        if error is not None:
            raise error

    def _begin(self, dist, known, rank, layers, tokens):
        name, cache, _ = known
        for again in (True, False):
            remote = self._others.get((rank, name)) if again else None
            try:
                if remote is None:
                    remote = self._others[rank, name] = dist.find(rank, kv.CacheKey(name=name))
                return dist.push(cache, remote, source=[0], target=[0], tokens=tokens, layers=layers)
            except hixl.Error as error:
                # Registered anew since it was found.
                if not again or error.code not in (hixl.ErrorCode.STALE, hixl.ErrorCode.CACHE_STALE):
                    raise

    def finalize(self):
        """Ends what is open, and leaves the job. Afterwards nobody touches the caches. Not in a callback."""
        if getattr(self._inside, "callback", False):
            raise RuntimeError("finalize() waits for callbacks, and so cannot be called by one")
        with self._lock:
            runtime, dist, threads = self._runtime, self._dist, self._threads
            self._runtime = self._dist = self._threads = None
            self._caches, self._others = {}, {}
        if runtime is None:
            return
        with told():
            try:
                dist.close()
            except hixl.Error:  # somebody does not answer: the runtime ends all the same
                pass
            try:
                runtime.stop()
            finally:
                threads.shutdown()
