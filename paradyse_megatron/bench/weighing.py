"""Peaks of memory of every option at lengths where what tensors hold is much more than what a process holds anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paradyse_megatron.bench.ranks import run_on_ranks
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.peaks import stack_bytes
from paradyse_megatron.cpu.memory import EXACT

RANK = "paradyse_megatron.bench.weighing:weigh"
TOKENS_A_RANK = (512, 1024, 2048)
"""Of a sequence; each rank holds as much in any group."""
RUN_SECONDS = 3600  # 1,100 were seen on a slow machine with four ranks


def weighed(traced: CostModel, num_layers: int, rank_bytes: int) -> dict[str, dict[int, int]]:
    """Bytes by option and length of a stack of layers, above weights and input, on loopback.

    Args:
        num_layers: of the stack (`profiling.stack`).
        rank_bytes: memory of a rank; points that would take more are left out.
    """
    points = [
        (option, length)
        for length in (tokens * traced.group_size for tokens in TOKENS_A_RANK)
        for option in traced.options
        if stack_bytes(traced.predict(option, length), num_layers) < rank_bytes
    ]
    arguments = {"shape": traced.shape.as_dict(), "batch": traced.micro_batch_size, "points": points}
    outcome = run_on_ranks(RANK, traced.group_size, arguments, timeout_seconds=RUN_SECONDS, environment=EXACT)
    if outcome.failure:
        raise ChildProcessError(f"weighing did not end: {outcome.failure}")
    found: dict[str, dict[int, int]] = {}
    for (option, length), peak in zip(points, outcome.results[0], strict=True):
        found.setdefault(option, {})[length] = peak
    return found


def weigh(shape: Mapping[str, Any], batch: int, points: Sequence[tuple[str, int]]) -> list[int]:
    """Worker: bytes of each point, the most of all ranks. A first run, which counts for nothing, makes what stays."""
    from paradyse_megatron.bench.model import start_ranks
    from paradyse_megatron.costmodel.shape import ModelShape
    from paradyse_megatron.cpu.memory import write_to_new_tensors
    from paradyse_megatron.profiling.stack import LayerStack

    start_ranks()
    write_to_new_tensors()
    stack = LayerStack(ModelShape(**shape), batch)
    for option in dict.fromkeys(option for option, _ in points):
        stack.peak_bytes(option, min(length for _, length in points))
    return [stack.peak_bytes(option, length) for option, length in points]
