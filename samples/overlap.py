# SPDX-License-Identifier: Apache-2.0
"""Compute and transfer at the same time, with two buffers: while one layer travels, the next one is computed into the
other buffer. Rank 0 computes, rank 1 checks every layer where it arrived.

    hixl_run -n 2 python3 overlap.py"""

import hashlib
import time

import hixl

LAYERS, LAYER_BYTES = 16, 4 << 20


def compute(layer, into):
    """Something that takes a while: the bytes of a layer depend on its number."""
    block = b"".join(hashlib.sha256(b"%d %d" % (layer, i)).digest() for i in range(2048))
    for start in range(0, LAYER_BYTES, len(block)):
        into[start:start + len(block)] = block


def prefill(rank, remote):
    buffers = [rank.allocate(LAYER_BYTES) for _ in range(2)]
    under_way = [None, None]
    computing = waiting = 0.0
    for layer in range(LAYERS):
        which = layer % 2
        start = time.perf_counter()
        if under_way[which] is not None:
            under_way[which].wait()  # the layer before the last: gone long ago, unless the link is slower than we
        middle = time.perf_counter()
        compute(layer, memoryview(buffers[which]))
        computing, waiting = computing + time.perf_counter() - middle, waiting + middle - start
        under_way[which] = rank.put_with_signal(buffers[which], remote.at(64 + layer * LAYER_BYTES),
                                                remote.at(0), op="add")
    hixl.wait_all(under_way)
    print(f"computed {computing:.3f} s, waited for transfers {waiting:.3f} s", flush=True)


def decode(rank, inbox):
    expected, good = bytearray(LAYER_BYTES), 0
    rank.wait_signal(inbox, LAYERS, compare=">=")
    for layer in range(LAYERS):
        compute(layer, expected)
        good += memoryview(inbox)[64 + layer * LAYER_BYTES:64 + (layer + 1) * LAYER_BYTES] == expected
    print(f"{good} of {LAYERS} layers are right", flush=True)


with hixl.Runtime.from_environment() as this_rank:
    layers = this_rank.allocate(64 + LAYERS * LAYER_BYTES if this_rank.rank == 1 else 64)
    other = this_rank.exchange(layers, [1 - this_rank.rank])[0].regions[0]
    prefill(this_rank, other) if this_rank.rank == 0 else decode(this_rank, layers)
    this_rank.barrier()
