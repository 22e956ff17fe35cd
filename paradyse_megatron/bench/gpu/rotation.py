"""Kernels that rotate queries and keys on their way, byte for byte against the torch executor."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from paradyse_megatron.bench.gpu import direct, exactness
from paradyse_megatron.bench.gpu.check import Check
from paradyse_megatron.comm import cuda, permutes
from paradyse_megatron.comm.rotary import Rotation
from paradyse_megatron.layouts.conversion import Conversion, qkv_to_heads
from paradyse_megatron.layouts.direct import landing_of
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing

PART = "rotary embedding"
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def rotation(device: torch.device, num_tokens: int = 301) -> Iterator[Check]:
    """There and back, packed for a wire and stored into peers' windows; one check for each P and dtype; b = 2."""
    for group_size in exactness.GROUP_SIZES:
        for dtype in DTYPES:
            differing, count = [], 0
            for name, conversion, way in _ways(group_size, num_tokens, device):
                count += 1
                if not (
                    _packs_alike(conversion, way, group_size, dtype)
                    and _stores_alike(conversion, way, group_size, dtype)
                ):
                    differing.append(name)
            found = f"differ: {', '.join(differing)}" if differing else f"{count} conversions, all bytes"
            yield Check(PART, f"P={group_size}, {exactness.name_of(dtype)}", not differing, found)


def _ways(group_size: int, num_tokens: int, device: torch.device) -> Iterator[tuple[str, Conversion, Rotation]]:
    """Heads of which all, half and an odd share is rotated, as halves and as pairs; with shared keys and without."""
    for groups, head_dim, num_rotated in ((group_size, 128, 128), (3 * group_size, 128, 64), (1, 67, 34)):
        sizes = AttentionSizes(HeadDealing(6 * group_size, groups, group_size), head_dim, num_tokens, 2)
        frequencies = 10_000 ** (-torch.arange(num_rotated, device=device) / num_rotated)
        angles = torch.arange(group_size * num_tokens, device=device).outer(frequencies)
        for interleaved in (False, True):
            way = Rotation(angles, slice(None), interleaved)
            name = f"{num_rotated} of d={head_dim}{' in pairs' if interleaved else ''}, {groups} groups"
            yield f"{name} there", qkv_to_heads(sizes), way
            yield f"{name} back", qkv_to_heads(sizes).inverse, way.inverse()


def _packs_alike(conversion: Conversion, way: Rotation, group_size: int, dtype: torch.dtype) -> bool:
    layout = conversion.source
    held = exactness.held_by_ranks(layout, group_size, dtype, way.angles.device)
    return all(
        exactness.same(cuda.pack(tensors, layout, rank, way), permutes.pack(tensors, layout, rank, way))
        for rank, tensors in enumerate(held)
    )


def _stores_alike(conversion: Conversion, way: Rotation, group_size: int, dtype: torch.dtype) -> bool:
    device, num_bytes = way.angles.device, landing_of(conversion.target).num_elements * dtype.itemsize
    among = direct.workspaces(group_size, -(-num_bytes // 256) * 256, device)
    held = exactness.held_by_ranks(conversion.source, group_size, dtype, device)
    found = direct.exchanged(conversion, held, among, way)
    return all(
        exactness.same(mine, wanted)
        for of_rank, wanted_of_rank in zip(found, direct.permuted(conversion, held, way), strict=True)
        for mine, wanted in zip(of_rank, wanted_of_rank, strict=True)
    )
