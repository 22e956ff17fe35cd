"""Direct stores of P simulated ranks on one device, byte for byte against the torch executor.

Each rank has a workspace of its own, a stream and a thread, and reaches the others' by the same array of addresses with
which ranks on several GPUs do. They exchange over and over, so that signals and both windows are in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from paradyse_megatron.bench.gpu import exactness
from paradyse_megatron.bench.gpu.check import Check
from paradyse_megatron.comm import permutes, symm
from paradyse_megatron.comm.rotary import Rotation
from paradyse_megatron.comm.windows import Workspace, bytes_of_workspace
from paradyse_megatron.layouts.conversion import Conversion
from paradyse_megatron.layouts.direct import landing_of

PART = "direct stores"
_LIMIT = timedelta(seconds=30)


def direct(device: torch.device, num_tokens: int = 301) -> Iterator[Check]:
    """Every conversion there and back, one check for each P and dtype."""
    for group_size in exactness.GROUP_SIZES:
        for dtype in exactness.DTYPES:
            differing, count = [], 0
            ways = [
                (f"{name} {way}", one)
                for name, conversion in exactness.conversions(group_size, num_tokens, dtype)
                for way, one in (("there", conversion), ("back", conversion.inverse))
            ]
            most = max(landing_of(one.target).num_elements for _, one in ways) * dtype.itemsize
            among = workspaces(group_size, -(-most // 256) * 256, device)
            for name, one in ways:
                count += 1
                if not stores_alike(one, among, dtype):
                    differing.append(name)
            found = f"differ: {', '.join(differing)}" if differing else f"{count} exchanges, all bytes"
            yield Check(PART, f"P={group_size}, {exactness.name_of(dtype)}", not differing, found)


def workspaces(group_size: int, window_bytes: int, device: torch.device) -> list[Workspace]:
    """Of all ranks, in memory of one device."""
    num_bytes = bytes_of_workspace(group_size, window_bytes)
    memories = [torch.zeros(num_bytes, dtype=torch.uint8, device=device) for _ in range(group_size)]
    peers = torch.tensor([memory.data_ptr() for memory in memories], dtype=torch.int64, device=device)
    return [Workspace(memory, peers, rank, window_bytes, _LIMIT) for rank, memory in enumerate(memories)]


def stores_alike(conversion: Conversion, among: Sequence[Workspace], dtype: torch.dtype) -> bool:
    """Whether all ranks get by direct stores what permutes and an exchange give."""
    device = among[0].memory.device
    held = exactness.held_by_ranks(conversion.source, len(among), dtype, device)
    found = exchanged(conversion, held, among)
    return all(
        exactness.same(mine, wanted)
        for of_rank, wanted_of_rank in zip(found, permuted(conversion, held), strict=True)
        for mine, wanted in zip(of_rank, wanted_of_rank, strict=True)
    )


def exchanged(
    conversion: Conversion,
    held: Sequence[Sequence[Tensor]],
    among: Sequence[Workspace],
    rotation: Rotation | None = None,
) -> list[tuple[Tensor, ...]]:
    """What each rank gets by direct stores; all of them run at once, as they wait for each other."""
    device = among[0].memory.device
    _wait(device)

    def rank(mine: Workspace) -> tuple[Tensor, ...]:
        with _own_stream(device):
            symm.send(conversion, held[mine.rank], mine, rotation)
            return symm.take(conversion, mine, held[mine.rank][0])

    with ThreadPoolExecutor(len(among)) as ranks:
        found = list(ranks.map(rank, among))
    _wait(device)
    return found


def permuted(
    conversion: Conversion, held: Sequence[Sequence[Tensor]], rotation: Rotation | None = None
) -> Iterator[tuple[Tensor, ...]]:
    """What each rank gets by the torch executor and a simulated exchange."""
    source, target = conversion.source, conversion.target
    parts = [
        permutes.pack(tensors, source, rank, rotation).split(list(source.blocks_per_peer(rank)))
        for rank, tensors in enumerate(held)
    ]
    for rank in range(len(held)):
        yield permutes.unpack(torch.cat([part[rank] for part in parts]), target, rank)


def _own_stream(device: torch.device) -> Any:
    return torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
