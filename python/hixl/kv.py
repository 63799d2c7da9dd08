# SPDX-License-Identifier: Apache-2.0
"""LLM-DataDist: KV caches between ranks, moved by layers, heads and tokens. docs/kv.md has its nouns and promises,
which are the same here.

    dist = hixl.kv.DataDist(rank, role=hixl.kv.Role.DECODE)
    cache = dist.register_cache(hixl.kv.CacheKey(name=7), layout, blocks, [(region, 0)])
    dist.link([0])
    dist.pull(cache, dist.find(0, hixl.kv.CacheKey(name=7)), source=[3, 1], target=[0, 1]).wait()

Times are seconds. Wherever one of these shapes is asked for, a plain tuple of its numbers will do."""

import enum
from typing import NamedTuple

from ._core import DataDist, RemoteCache, Transfer


class Role(enum.IntEnum):
    """A prefill pushes and is pulled from; a decode pulls and is pushed to."""

    PREFILL = 1
    DECODE = 2
    BOTH = 3


class LinkState(enum.IntEnum):
    """Of DataDist.link_state()."""

    NONE = 0
    LINKED = 1
    PEER_UNLINKED = 2
    PEER_LOST = 3


class Form(enum.IntEnum):
    """How K and V of a layer lie to each other."""

    SEPARATE = 0
    BLOCK_INTERLEAVED = 1
    TOKEN_INTERLEAVED = 2
    LATENT = 3


class Order(enum.IntEnum):
    """How the vectors of a block follow each other."""

    TOKEN_MAJOR = 0
    HEAD_MAJOR = 1


class Layout(NamedTuple):
    """How keys and values lie in memory."""

    layers: int
    kv_heads: int
    head_dim: int
    block_tokens: int
    dtype_bytes: int = 2
    form: int = Form.SEPARATE
    order: int = Order.TOKEN_MAJOR


class Shard(NamedTuple):
    """Which layers and heads of the model a rank holds; a total of 0: it has them all."""

    layers_first: int = 0
    layers_total: int = 0
    heads_first: int = 0
    heads_total: int = 0


class CacheKey(NamedTuple):
    """Name of a cache, chosen by the program; unique on its rank."""

    model: int = 0
    name: int = 0


__all__ = ["CacheKey", "DataDist", "Form", "Layout", "LinkState", "Order", "RemoteCache", "Role", "Shard", "Transfer"]
