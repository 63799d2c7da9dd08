# SPDX-License-Identifier: Apache-2.0
"""CacheManager: registers caches of this cluster, and moves KV between them and those of clusters that it has linked
with. Calls return when every byte is at its place, and raise LLMException when none can move any more."""

import itertools

from .tasks import CacheTask
from .values import (BY_ID, KEYS, BlocksCacheKey, Cache, CacheDesc, CacheKey, CacheKeyByIdAndIndex,
                     TransferWithCacheKeyConfig, number)
from .words import LLMException, LLMStatusCode, checked, told

# For all layers of transfer_cache_async(): a prompt may be computed for minutes.
TASK_TIMEOUT_S = 600
# Where tensors of allocate_cache() begin.
ALIGNMENT = 64


def layers_of(source, target, tensors_per_layer):
    """Ranges of layers, as what hixl.kv calls layers: tensors."""
    if source is None and target is None:
        return {}
    source = range(len(target)) if source is None else source
    target = source if target is None else target
    for one in (source, target):
        if not isinstance(one, range) or one.step != 1 or len(one) == 0 or one.start < 0:
            raise ValueError(f"a range of layers is {one!r}; it must be a range of one or more, by steps of 1")
    if len(source) != len(target):
        raise ValueError(f"{len(source)} layers cannot become {len(target)}")
    number(tensors_per_layer, 1, 240, "tensor_num_per_layer")
    return {"layers": (source.start * tensors_per_layer, source.stop * tensors_per_layer),
            "target_layer": target.start * tensors_per_layer}


def place_of(key):
    """The block of a sequence in the cache that its key names."""
    return [key.batch_index] if isinstance(key, CacheKeyByIdAndIndex) else [0]


class CacheManager:
    def __init__(self, owner, timeout_s):
        self._owner, self._timeout_s = owner, timeout_s
        self._ids = itertools.count(1)
        self._allocated = {}  # by cache_id: the region

    # ---- registration ----
    def register_cache(self, cache_desc, addrs, cache_keys=None, remote_accessible=None):
        """A Cache over memory of the program: addrs, where each tensor begins. cache_keys: of each sequence, in order.
        remote_accessible=False: clusters that link with this one do not find it."""
        keys = [checked(key, CacheKey, "a cache key") for key in cache_keys or ()]
        if len(keys) > checked(cache_desc, CacheDesc, "cache_desc").blocks:
            raise ValueError(f"{len(keys)} keys for {cache_desc.blocks} sequences")
        return self._register(cache_desc, addrs, [(key.name(), at, 1) for at, key in enumerate(keys)],
                              remote_accessible, False)

    def register_blocks_cache(self, cache_desc, addrs, blocks_cache_key=None, remote_accessible=None):
        """The same of a cache of blocks, which its key names as a whole."""
        names = []
        if blocks_cache_key is not None:
            key = checked(blocks_cache_key, BlocksCacheKey, "blocks_cache_key")
            names = [(key.name(), 0, checked(cache_desc, CacheDesc, "cache_desc").blocks)]
        return self._register(cache_desc, addrs, names, remote_accessible, True)

    def _register(self, desc, addrs, names, remote_accessible, is_blocks):
        addrs = [number(address, 1, 2**64 - 1, "an address") for address in addrs]
        if len(addrs) != checked(desc, CacheDesc, "cache_desc").num_tensors:
            raise ValueError(f"{len(addrs)} addresses for {desc.num_tensors} tensors")
        cache = Cache(next(self._ids), desc, addrs, is_blocks)
        names = [((BY_ID << 62, cache.cache_id), 0, desc.blocks), *names]
        self._owner._show(cache, names, remote_accessible is not False)
        return cache

    def unregister_cache(self, cache_id):
        """Afterwards nobody touches its memory. One that there is not is no failure."""
        self._owner._hide(cache_id)

    def allocate_cache(self, cache_desc, cache_keys=()):
        """register_cache() over memory that the library allocates."""
        return self._allocate(cache_desc, lambda addrs: self.register_cache(cache_desc, addrs, cache_keys))

    def allocate_blocks_cache(self, cache_desc, blocks_cache_key=None):
        return self._allocate(cache_desc, lambda addrs: self.register_blocks_cache(cache_desc, addrs, blocks_cache_key))

    def _allocate(self, desc, register):
        step = (checked(desc, CacheDesc, "cache_desc").tensor_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        with told():
            region = self._owner._inited().runtime.allocate(step * desc.num_tensors)
            try:
                cache = register([region.address + i * step for i in range(desc.num_tensors)])
            except BaseException:
                region.deregister()
                raise
        self._allocated[cache.cache_id] = region
        return cache

    def deallocate_cache(self, cache):
        self.unregister_cache(checked(cache, Cache, "cache").cache_id)
        region = self._allocated.pop(cache.cache_id, None)
        if region is not None:
            with told():
                region.deregister()

    deallocate_blocks_cache = deallocate_cache

    # ---- transfer ----
    def pull_cache(self, cache_key, cache, batch_index=0, size=-1, src_layer_range=None, dst_layer_range=None,
                   tensor_num_per_layer=2):
        """A sequence of another cluster into the one at batch_index here; `size`: bytes of each tensor, -1 for all."""
        checked(cache_key, (CacheKey, CacheKeyByIdAndIndex), "cache_key")
        each = checked(cache, Cache, "cache").cache_desc.number_bytes
        if size != -1 and (number(size, 1, 2**48, "size") % each != 0):
            raise ValueError(f"size is {size}; it must be a multiple of the {each} bytes of a number")
        self._begin("pull", cache_key, cache, place_of(cache_key), [batch_index],
                    tokens=None if size == -1 else (0, size // each),
                    **layers_of(src_layer_range, dst_layer_range, tensor_num_per_layer))

    def pull_blocks(self, cache_key, dst_cache, src_blocks, dst_blocks, src_layer_range=None, dst_layer_range=None,
                    tensor_num_per_layer=2):
        """Blocks of another cluster's block cache, or (no src_blocks) a sequence of a cache, into blocks here."""
        self._blocks("pull", cache_key, dst_cache, src_blocks, dst_blocks, place_of(checked(cache_key, KEYS, "key")),
                     layers_of(src_layer_range, dst_layer_range, tensor_num_per_layer))

    def push_cache(self, dst_cache_key, src_cache, src_batch_index=0, src_layer_range=None, dst_layer_range=None,
                   size=-1, tensor_num_per_layer=2):
        """A sequence of this cluster into another's. `size` can only be -1."""
        checked(dst_cache_key, (CacheKey, CacheKeyByIdAndIndex), "dst_cache_key")
        if size != -1:
            raise ValueError(f"size is {size}; a push is of all, -1")
        self._begin("push", dst_cache_key, src_cache, [src_batch_index], place_of(dst_cache_key),
                    **layers_of(src_layer_range, dst_layer_range, tensor_num_per_layer))

    def push_blocks(self, dst_cache_key, src_cache, src_blocks, dst_blocks, src_layer_range=None,
                    dst_layer_range=None, tensor_num_per_layer=2):
        """Blocks of this cluster into blocks of another one's block cache."""
        checked(dst_cache_key, (BlocksCacheKey, CacheKeyByIdAndIndex), "dst_cache_key")
        self._blocks("push", dst_cache_key, src_cache, src_blocks, dst_blocks, [],
                     layers_of(src_layer_range, dst_layer_range, tensor_num_per_layer))

    def _blocks(self, verb, key, cache, src_blocks, dst_blocks, sequence, layers):
        tokens = None
        if not len(src_blocks) and sequence:
            tokens = (0, len(dst_blocks) * checked(cache, Cache, "cache").cache_desc.numbers)
            src_blocks = sequence
        self._begin(verb, key, cache, src_blocks, dst_blocks, tokens=tokens, **layers)

    def _begin(self, verb, key, cache, source, target, wait=True, **options):
        """The Transfer; with `wait` it has ended well."""
        with told():
            own, rank = self._owner._inited(), self._owner._rank_of(key.cluster_id)
            options.setdefault("timeout", self._timeout_s)
            try:
                mine = own.id_of(checked(cache, Cache, "cache"))
            except LookupError:
                raise LLMException(f"cache {cache.cache_id} is not registered here",
                                   LLMStatusCode.LLM_KV_CACHE_NOT_EXIST) from None
            there = own.dist.find(rank, key.name(), self._timeout_s)
            transfer = getattr(own.dist, verb)(mine, there, source, target, **options)
            if wait:
                transfer.wait()
            return transfer

    def transfer_cache_async(self, src_cache, layer_synchronizer, transfer_configs, src_block_indices=None,
                             dst_block_indices=None, dst_block_memory_size=None):
        """Pushes each layer when layer_synchronizer says that it is there: a CacheTask. A TransferWithCacheKeyConfig
        for each target; plain addresses of another cluster are LLM_FEATURE_NOT_ENABLED."""
        layers = checked(src_cache, Cache, "src_cache").cache_desc.num_tensors // 2
        begun = []
        try:
            for config in transfer_configs:
                if not isinstance(config, TransferWithCacheKeyConfig):
                    raise LLMException("a target is a TransferWithCacheKeyConfig: addresses of another cluster name no "
                                       "memory that could be checked", LLMStatusCode.LLM_FEATURE_NOT_ENABLED)
                source = range(layers) if config.src_layer_range is None else config.src_layer_range
                ranges = layers_of(source, config.dst_layer_range, 2)
                begun.append((source, self._begin(
                    "push", config.cache_key, src_cache, src_block_indices or [config.src_batch_index],
                    dst_block_indices or place_of(config.cache_key), wait=False, layered=True,
                    timeout=TASK_TIMEOUT_S, **ranges)))
        except BaseException:
            for _, transfer in begun:
                transfer.cancel()
            raise
        return CacheTask(layer_synchronizer, begun)
