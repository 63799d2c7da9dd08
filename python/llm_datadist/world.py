# SPDX-License-Identifier: Apache-2.0
"""World: a rank with its DataDist, and the caches that it shows. A cluster has one of its own, in which it is rank 0
and moves KV; and one in the world of each cluster that has linked with it, in which others move KV from it or to it."""

import threading

import hixl
from hixl import kv

# Registrations of one world, one for a cache and one for each of its keys.
CACHES_MAX = 256
# Numbers of ranks of a world: the cluster's own is 0, and each link that it makes takes the next one.
WORLD_SIZE = 65536
# Links that a cluster makes in its life; as many peers a runtime knows (peers_max). With CACHES_MAX they cost 6 MiB.
LINKS_MAX = 1024


class World:
    def __init__(self, role, links_max=LINKS_MAX, **options):
        self._ending = threading.Lock()
        self.runtime = hixl.Runtime(world_size=WORLD_SIZE, **options)
        try:
            self.dist = kv.DataDist(self.runtime, role, CACHES_MAX, links_max=links_max)
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
        try:
            self._remove(cache_id)
        except hixl.Error as error:
            if error.code != hixl.ErrorCode.STOPPED:
                raise
            self.close()  # somebody ends it: when that is done nobody touches anything

    def _remove(self, cache_id):
        regions, ids = self._shown.get(cache_id, ((), ()))
        while ids:
            self.dist.unregister_cache(ids[-1])
            ids.pop()
        while regions:
            regions[-1].deregister()
            regions.pop()
        self._shown.pop(cache_id, None)

    def id_of(self, cache):
        """LookupError: it has been unregistered."""
        return self._shown[cache.cache_id][1][0]

    def close(self):
        """Afterwards nobody touches a cache by this world. Raises what kept the runtime from its end."""
        with self._ending:
            try:
                self.dist.close()
            except hixl.Error:  # somebody does not answer: the runtime ends all the same
                pass
            self.runtime.stop()
