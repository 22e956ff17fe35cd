"""What every executor of conversions is held to: the bytes of `permutes`, on whatever tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from paradyse_megatron.comm import permutes
from paradyse_megatron.layouts.conversion import context_to_tokens, contiguous_to_zigzag, qkv_to_heads
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing

DTYPES = [torch.int8, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.complex64]
SUMMED = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def random(shape, dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float64).to(dtype)
    return torch.randint(-100, 100, shape).to(dtype)


def scattered(shape, dtype) -> torch.Tensor:
    """With gaps and batch before tokens in memory, as attention libraries return it."""
    order = (1, 0, *range(2, len(shape)))
    roomy = random([size + (axis > 0) for axis, size in enumerate(np.array(shape)[list(order)])], dtype)
    return roomy[tuple(slice(0, shape[axis]) for axis in order)].permute(order)


def equal(one, other) -> bool:
    """Bit for bit, so that zeros have signs and what is not a number equals itself."""
    return (one.dtype, one.shape) == (other.dtype, other.shape) and torch.equal(_bits(one), _bits(other))


def _bits(tensor):
    return tensor.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def all_layouts(sizes: AttentionSizes):
    """(layout, rank) of every end of every conversion."""
    num_ranks = sizes.dealing.num_ranks
    for conversion in (qkv_to_heads(sizes), context_to_tokens(sizes)):
        yield from ((layout, 0) for layout in (conversion.source, conversion.target))
    for rank in range(num_ranks):
        chunks = contiguous_to_zigzag(num_ranks, 1, sizes.num_tokens * sizes.batch)
        yield from ((layout, rank) for layout in (chunks.source, chunks.target))


def assert_same_bytes(executor: Any, layout: Any, rank: int, dtype: torch.dtype, make: Any) -> None:
    """Packed and unpacked; integers are not unpacked where copies would be summed."""
    tensors = [make(shape, dtype) for shape in layout.shapes]
    wire = permutes.pack(tensors, layout, rank)
    assert equal(executor.pack(tensors, layout, rank), wire)
    if dtype in SUMMED or not any(s.sums_copies for s in layout.sections(rank, ((0,) * 4,) * 3)):
        wire = random(wire.shape, dtype)
        found, wanted = executor.unpack(wire, layout, rank), permutes.unpack(wire, layout, rank)
        assert all(equal(mine, other) for mine, other in zip(found, wanted, strict=True))


HARD = [0.0, -0.0, 1.0, -1.0, 1e-8, 6e-8, 6.1e-5, 65504.0, -65504.0, 1e30, float("inf"), -float("inf"), float("nan")]


def assert_same_sums(executor: Any, dtype: torch.dtype, head_dim: int, seed: int) -> None:
    """Of copies, to the last bit: subnormal, overflowing and other hard numbers, and every pattern of 16 bits."""
    layout = qkv_to_heads(AttentionSizes(HeadDealing(8, 1, 8), head_dim, 16, 2)).source
    generator = torch.Generator().manual_seed(seed)
    wire = torch.randint(-(2**15), 2**15, (8, layout.block_elements * dtype.itemsize // 2), generator=generator)
    wire = wire.to(torch.int16).view(dtype)
    hard = torch.tensor(HARD, dtype=torch.float64).to(dtype)
    places = torch.randint(len(hard), wire.shape, generator=generator)
    wire = torch.where(torch.rand(wire.shape, generator=generator) < 0.5, hard[places], wire)
    (mine,), (wanted,) = executor.unpack(wire, layout, 0), permutes.unpack(wire, layout, 0)
    assert torch.equal(mine.isnan(), wanted.isnan())
    assert equal(mine.nan_to_num(7.0), wanted.nan_to_num(7.0))
    assert 0 < mine.isnan().sum() < mine.numel()


def assert_copies_any_strides(executor: Any) -> None:
    """Views of every sort, into the same and another precision."""
    source = torch.randn(3, 4, 5, 6, 7)
    spread = source[:1].expand(9, -1, -1, -1, -1)
    for view in (source, source.movedim(0, 2), source[:, 1:3], source.flip(0), source[..., ::2], spread):
        for dtype in (torch.float32, torch.float64):
            target = torch.zeros(view.shape, dtype=dtype)
            executor.copy_(target, view)
            assert torch.equal(target, view.to(dtype))
