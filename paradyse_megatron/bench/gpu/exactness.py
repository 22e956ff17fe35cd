"""Kernels against the torch executor, byte for byte, for each of P simulated ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from paradyse_megatron.bench.gpu.check import Check
from paradyse_megatron.comm import cuda, permutes
from paradyse_megatron.layouts.conversion import (
    Conversion,
    Layout,
    context_to_tokens,
    contiguous_to_zigzag,
    qkv_to_heads,
)
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing

PART = "kernels"
GROUP_SIZES = (2, 3, 5, 8)
DTYPES = (torch.int8, torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64)
BEYOND_32_BITS = 2**31 + 1


def small(device: torch.device, num_tokens: int = 301) -> Iterator[Check]:
    """Every conversion there and back, one check for each P and dtype; odd sizes, b = 2."""
    for group_size in GROUP_SIZES:
        for dtype in DTYPES:
            differing, count = [], 0
            for name, conversion in conversions(group_size, num_tokens, dtype):
                for way, one in ((f"{name} there", conversion), (f"{name} back", conversion.inverse)):
                    count += 1
                    if not exchanges_alike(one, group_size, dtype, device):
                        differing.append(way)
            found = f"differ: {', '.join(differing)}" if differing else f"{count} conversions, all bytes"
            yield Check(PART, f"P={group_size}, {name_of(dtype)}", not differing, found)


def large(device: torch.device, num_elements: int = BEYOND_32_BITS) -> Iterator[Check]:
    """More elements than 32 bits count: one chunk of so many; q, k and v with so many; copies summed of so many."""
    chunks = contiguous_to_zigzag(2, 1, num_elements)
    yield _large("chunks in zigzag order", chunks.source, 1, torch.int8, device, True)
    num_tokens = math.ceil(num_elements / (96 * 128))
    whole = qkv_to_heads(AttentionSizes(HeadDealing(32, 32, 2), 128, num_tokens, 1))
    yield _large("q, k and v packed", whole.source, 0, torch.int8, device, True)
    yield _large("q, k and v unpacked", whole.target, 0, torch.int8, device, False)
    num_tokens = math.ceil(num_elements / (34 * 128))
    shared = qkv_to_heads(AttentionSizes(HeadDealing(32, 1, 2), 128, num_tokens, 1))
    yield _large("copies of k and v summed", shared.source, 0, torch.bfloat16, device, False)


def held_by_ranks(layout: Layout, group_size: int, dtype: torch.dtype, device: torch.device) -> list[list[Tensor]]:
    """Tensors of every rank, at random."""
    return [[_scattered(shape, dtype, device) for shape in layout.shapes] for _ in range(group_size)]


def exchanges_alike(conversion: Conversion, group_size: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether all ranks get the same bytes from kernels as from permutes, through a simulated exchange."""
    source, target = conversion.source, conversion.target
    held = held_by_ranks(source, group_size, dtype, device)
    sent = [permutes.pack(tensors, source, rank) for rank, tensors in enumerate(held)]
    alike = all(same(cuda.pack(tensors, source, rank), sent[rank]) for rank, tensors in enumerate(held))
    parts = [wire.split(list(source.blocks_per_peer(rank))) for rank, wire in enumerate(sent)]
    for rank in range(group_size):
        wire = torch.cat([part[rank] for part in parts])
        pairs = zip(cuda.unpack(wire, target, rank), permutes.unpack(wire, target, rank), strict=True)
        alike = alike and all(same(mine, wanted) for mine, wanted in pairs)
    return alike


def same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    one, other = one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8)
    step = 1 << 28  # comparing makes a byte for each byte
    return all(
        torch.equal(one[start : start + step], other[start : start + step]) for start in range(0, len(one), step)
    )


def _large(name: str, layout: Layout, rank: int, dtype: torch.dtype, device: torch.device, to_wire: bool) -> Check:
    num_elements = sum(math.prod(shape) for shape in layout.shapes)
    named = f"{name}, {num_elements:,} elements"
    needed = 6 * num_elements * dtype.itemsize
    if device.type == "cuda" and torch.cuda.mem_get_info(device)[0] < needed:
        return Check(PART, named, True, f"left out: needs {needed / 2**30:.0f} GiB of free GPU memory")
    blocks = (sum(layout.blocks_per_peer(rank)), layout.block_elements)
    if to_wire:
        tensors = [_random(shape, dtype, device) for shape in layout.shapes]
        holds = same(cuda.pack(tensors, layout, rank), permutes.pack(tensors, layout, rank))
    else:
        wire = _random(blocks, dtype, device)
        pairs = zip(cuda.unpack(wire, layout, rank), permutes.unpack(wire, layout, rank), strict=True)
        holds = all(same(mine, wanted) for mine, wanted in pairs)
    return Check(PART, named, holds, "all bytes" if holds else "bytes differ")


def conversions(group_size: int, num_tokens: int, dtype: torch.dtype) -> Iterator[tuple[str, Conversion]]:
    """By name: heads and groups of several numbers, sizes that are multiples of nothing, b = 2."""
    sums = dtype.is_floating_point
    for groups in (group_size, 3 * group_size, *([1] if sums else [])):
        for head_dim in (128, 67):
            sizes = AttentionSizes(HeadDealing(6 * group_size, groups, group_size), head_dim, num_tokens, 2)
            yield f"q, k, v of {groups} groups, d={head_dim}", qkv_to_heads(sizes)
            yield f"context, d={head_dim}", context_to_tokens(sizes)
    yield "zigzag", contiguous_to_zigzag(group_size, 1, 2 * num_tokens * 67 + 1)


def _random(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=dtype, device=device)
    return torch.empty(shape, dtype=dtype, device=device).random_(-100, 100)


def _scattered(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """With the first two dimensions the other way round in memory, as attention libraries return them."""
    return _random((shape[1], shape[0], *shape[2:]), dtype, device).transpose(0, 1)


def name_of(dtype: torch.dtype) -> str:
    """As a user writes it."""
    return str(dtype).removeprefix("torch.")
