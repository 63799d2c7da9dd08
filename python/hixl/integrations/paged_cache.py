# SPDX-License-Identifier: Apache-2.0
"""PagedCache: a model's KV cache as an engine has it, a tensor for each layer, in the words of hixl.kv. Shape and
strides say how it lies; the tensors are torch's, or have their data_ptr(), shape, stride() and element_size()."""

from typing import Any, List, NamedTuple, Tuple

from hixl import kv


class PagedCache(NamedTuple):
    layout: kv.Layout
    blocks: int
    regions: List[Tuple[int, int]]  # (address, bytes) of each layer
    tensors: List[Tuple[int, int]]  # (which of the regions, where in it) of each tensor, K before V
    holds: Any  # whose the memory is


def paged_cache(kv_caches):
    """Of {name of a layer: its tensor}, the layers in order. Tensors are (2, blocks, tokens, heads, dim) or
    (blocks, 2, tokens, heads, dim) as K and V, or (blocks, tokens, dim) as MLA has it; a permuted view is known by its
    strides. ValueError: another shape, gaps, layers that differ; BufferError: memory that the CPU cannot use."""
    shapes = {_shape(name, tensor) for name, tensor in kv_caches.items()}
    if len(shapes) != 1:
        raise ValueError(f"the layers' tensors must be of one shape, and are of {len(shapes)}: {sorted(shapes)[:2]}")
    (shape, strides, number_bytes), = shapes
    form, order, blocks, block_tokens, heads, dim, value = _form(shape, strides)
    layers = list(kv_caches.values())
    layout = kv.Layout(len(layers), heads, dim, block_tokens, number_bytes, form, order)
    size = number_bytes
    for length in shape:
        size *= length
    values = (0,) if value is None else (0, value * number_bytes)
    return PagedCache(layout, blocks, [(layer.data_ptr(), size) for layer in layers],
                      [(i, offset) for i in range(len(layers)) for offset in values], layers)


def _shape(name, tensor):
    device = getattr(getattr(tensor, "device", None), "type", "cpu")
    if device != "cpu":
        raise BufferError(f"{name} is on {device}, whose memory the CPU cannot use")
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    expected = 1
    for stride, length in sorted(zip(strides, shape)):
        if length != 1 and stride != expected:
            raise ValueError(f"{name} has gaps: shape {shape}, strides {strides}")
        expected *= length
    return shape, strides, tensor.element_size()


def _form(shape, strides):
    """(form, order, blocks, tokens of a block, heads, dim, numbers from K to V where these are two tensors)"""
    if len(shape) == 3:
        wanted, found = (0, 1, 2), (kv.Form.LATENT, kv.Order.TOKEN_MAJOR, *shape[:2], 1, shape[2], None)
    elif len(shape) == 5 and 2 in shape[:2]:
        both = 0 if shape[0] == 2 else 1
        block, tokens, heads, dim = 1 - both, 2, 3, 4
        apart = strides[both] > strides[block]
        outside = [both, block] if apart else [block, both]
        by_heads = strides[heads] > strides[tokens]
        wanted = (*outside, heads, tokens, dim) if by_heads else (*outside, tokens, heads, dim)
        found = (kv.Form.SEPARATE if apart else kv.Form.BLOCK_INTERLEAVED,
                 kv.Order.HEAD_MAJOR if by_heads else kv.Order.TOKEN_MAJOR, shape[block], shape[tokens], shape[heads],
                 shape[dim], strides[both] if apart else None)
    else:
        raise ValueError(f"a tensor of shape {shape} is neither K and V nor MLA of a paged cache")
    # A length of 1 may have any stride.
    order = [strides[i] for i in wanted if shape[i] != 1]
    if order != sorted(order, reverse=True):
        raise ValueError(f"a tensor of shape {shape} with strides {strides} has no blocks that lie in a row")
    return found
