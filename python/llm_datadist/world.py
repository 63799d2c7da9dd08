# SPDX-License-Identifier: Apache-2.0
"""World: a rank with its DataDist, and the caches that it shows. A cluster has one of its own, in which it is rank 0
and moves KV; and one in the world of each cluster that has linked with it, in which others move KV from it or to it."""

import hixl
from hixl import kv

# Registrations of one world: 1 MiB for each 32 of them.
CACHES_MAX = 256
# Ranks of a world: the cluster itself, and one for each link that it ever makes.
WORLD_SIZE = 65536


class World:
    def __init__(self, role, **options):
        self.runtime = hixl.Runtime(world_size=WORLD_SIZE, **options)
        try:
            self.dist = kv.DataDist(self.runtime, role, CACHES_MAX)
        except BaseException:
            self.runtime.stop()
            raise
        self._shown = {}  # by cache_id: (regions, registrations; the first is of the whole cache)

    def add(self, cache, names):
        """`names`: (name, its first block, how many) of each name under which it shall be found."""
        desc, regions, ids = cache.cache_desc, [], []
        # A tensor is a layer, and a number a token: so the library moves any tensors, and any part of one.
        layout = kv.Layout(desc.num_tensors, 1, 1, desc.numbers, desc.number_bytes, kv.Form.LATENT)
        block_bytes = desc.numbers * desc.number_bytes
        self._shown[cache.cache_id] = regions, ids
        try:
            for address in cache.tensor_addrs:
                regions.append(self.runtime.register_memory(address, desc.tensor_bytes))
            for name, first, blocks in names:
                ids.append(self.dist.register_cache(name, layout, blocks,
                                                    [(region, first * block_bytes) for region in regions]))
        except BaseException:
            self.remove(cache.cache_id)
            raise

    def remove(self, cache_id):
        """Afterwards nobody touches it. May be called again after a failure; a cache that is not here is no failure."""
        regions, ids = self._shown.get(cache_id, ((), ()))
        while ids:
            self.dist.unregister_cache(ids[-1])
            ids.pop()
        while regions:
            regions[-1].deregister()
            regions.pop()
        self._shown.pop(cache_id, None)

    def id_of(self, cache):
        """KeyError: it has been unregistered."""
        return self._shown[cache.cache_id][1][0]

    def close(self):
        try:
            self.dist.close()
        except hixl.Error:  # somebody does not answer: the runtime ends all the same
            pass
        self.runtime.stop()
