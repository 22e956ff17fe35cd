"""Rotations of queries and keys, and what every executor is held to: the bytes of `permutes`."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from paradyse_megatron.comm import permutes
from paradyse_megatron.comm.rotary import Rotation
from paradyse_megatron.layouts.conversion import qkv_to_heads
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.zigzag import zigzag_positions
from tests.comm.same_bytes import equal


def angles_of(num_positions: int, num_rotated: int) -> torch.Tensor:
    """[s, r]; those of partners differ, which a model's never do, so that no mistake about them hides."""
    frequencies = 10_000 ** (-torch.arange(num_rotated) / num_rotated)
    return torch.arange(num_positions).outer(frequencies)


def rotation_of(sizes: AttentionSizes, num_rotated: int, interleaved: bool, zigzag: bool = False) -> Rotation:
    """Of all ranks' tokens, in contiguous order or as the second place of three in zigzag order."""
    num_tokens = sizes.dealing.num_ranks * sizes.num_tokens
    if not zigzag:
        return Rotation(angles_of(num_tokens, num_rotated), slice(0, num_tokens), interleaved)
    positions = torch.from_numpy(zigzag_positions(1, 3, 3 * num_tokens))
    return Rotation(angles_of(3 * num_tokens, num_rotated), positions, interleaved)


def by_heads(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """[b, heads, tokens, d] in memory, as attention takes and returns them."""
    order = (1, 2, 0, 3) if len(shape) == 4 else (1, 0, 2)
    inner = torch.randn([shape[axis] for axis in order], dtype=torch.float64).to(dtype)
    return inner.permute(*[order.index(axis) for axis in range(len(shape))])


def expanded(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The same for all tokens, as the gradient of a mean over them."""
    return torch.randn((1, *shape[1:]), dtype=torch.float64).to(dtype).expand(shape)


rotations = st.tuples(st.integers(1, 4), st.booleans(), st.booleans())
"""Half of the numbers that are rotated, whether in neighbouring pairs, and whether in zigzag order."""


def assert_rotates_alike(
    executor: Any, sizes: AttentionSizes, how: tuple[int, bool, bool], dtype: Any, make: Any
) -> None:
    """Both ends, there and back, on every rank."""
    half, interleaved, zigzag = how
    if zigzag and sizes.dealing.num_ranks * sizes.num_tokens % 2:
        zigzag = False
    rotation = rotation_of(sizes, 2 * half, interleaved, zigzag)
    conversion = qkv_to_heads(sizes)
    for layout, way in ((conversion.source, rotation), (conversion.target, rotation.inverse())):
        for rank in range(sizes.dealing.num_ranks):
            tensors = [make(shape, dtype) for shape in layout.shapes]
            wanted = permutes.pack(tensors, layout, rank, way)
            assert equal(executor.pack(tensors, layout, rank, way), wanted)
            assert not equal(wanted, permutes.pack(tensors, layout, rank)) or sizes.num_tokens == 1
