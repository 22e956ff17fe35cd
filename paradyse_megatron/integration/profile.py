"""A profile of a model on this machine: traced here, measured by ranks that torchrun starts, put together here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.first_principles import redescribed
from paradyse_megatron.costmodel.links import measured_links
from paradyse_megatron.costmodel.measured import with_measurements
from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.peaks import stack_bytes
from paradyse_megatron.cpu.memory import EXACT
from paradyse_megatron.integration.rank_environment import rank_environment
from paradyse_megatron.layouts.padding import padding_multiple
from paradyse_megatron.planner.jsonfile import Json
from paradyse_megatron.profiling.measure import HEAD_TARGETS, Measured, read_kept
from paradyse_megatron.profiling.stack import stack_layers

SHORTEST_TOKENS = 128
SAFE_SHARE = 0.7
"""Of the memory that is there, what a measured stack may take: what it takes is only predicted yet."""

Launch = Callable[[Json, Mapping[str, str]], None]
"""Runs `profile_rank.run` with these arguments on P ranks, with these variables in their environment.

Raises a RuntimeError when that fails.
"""


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        traced: the cost model to put measurements into.
        cluster: the machine on which its times were worked out; what is measured of its links takes their place.
        budget_seconds: for timing.
        longest_tokens: no length above this one.
        memory_bytes: that one rank may use.
        keep: file for what was measured so far.
        machine: name of the machine.
        options: canonical texts of those to measure; None for all that have costs.
        on_gpu: whether memory is a GPU's, whose allocator tells what tensors hold. On CPUs memory is weighed by
            processes of its own (`cpu.memory.EXACT`), which would be slow to time.
        transformer_impl: whose layers are measured, as Megatron's argument of that name.
        weighs: whether memory is measured too.
    """

    traced: CostModel
    cluster: Cluster
    budget_seconds: float
    longest_tokens: int
    memory_bytes: int
    keep: Path
    machine: str
    options: Sequence[str] | None = None
    on_gpu: bool = False
    transformer_impl: str = "local"
    weighs: bool = True


def measure(request: Request, launch: Launch) -> CostModel:
    """The traced model with what P ranks measured in its place; raises as `measurements`."""
    return with_measurements(*measurements(request, launch))


def measurements(request: Request, launch: Launch) -> tuple[CostModel, Measurements]:
    """The traced model over links as P ranks measure them, and all that they measure; `keep` is gone afterwards.

    Raises:
        ValueError: layers of several kinds, or nothing fits in memory.
    """
    traced = request.traced
    if len(traced.kinds) > 1:
        raise ValueError(
            f"A model with layers of several kinds ({', '.join(traced.kinds)}) cannot be measured; add --trace-only."
        )
    longest = longest_lengths(request)
    assignment = {
        "shape": traced.shape.as_dict(),
        "batch": traced.micro_batch_size,
        "longest": longest,
        "shortest": min(SHORTEST_TOKENS, *longest.values()),
        "budget_seconds": request.budget_seconds,
        "weigh_seconds": request.budget_seconds,
        "keep": str(request.keep),
        "transformer_impl": request.transformer_impl,
    }
    launch(assignment | {"weighs": request.weighs and request.on_gpu}, {})
    if request.weighs and not request.on_gpu:
        launch(assignment | {"budget_seconds": 0, "weighs": True}, EXACT)
    _, found = read_kept(request.keep)
    request.keep.unlink()
    measured = _as_measurements(found, request.machine)
    return redescribed(traced, replace(request.cluster, links=measured.links)), measured


def longest_lengths(request: Request) -> dict[str, int]:
    """For each option and each head, the longest length that should fit in memory, in tokens.

    Raises:
        ValueError: some option fits at no length.
    """
    traced = request.traced
    num_layers = stack_layers(traced.shape)

    def needed(target: str, length: int) -> int:
        if target in HEAD_TARGETS:
            return traced.predict_head(length, target.partition(":")[2]).saved_bytes
        return stack_bytes(traced.predict(target, length), num_layers)

    options = traced.options if request.options is None else request.options
    targets = [*options, *(target for target in HEAD_TARGETS if target.partition(":")[2] in traced.heads)]
    found = {target: _largest(target, needed, request) for target in targets}
    if not all(found.values()):
        names = ", ".join(target for target, length in found.items() if not length)
        raise ValueError(f"{request.memory_bytes:,} bytes a rank are too few to measure {names} at any length.")
    return found


def _largest(target: str, needed: Callable[[str, int], int], request: Request) -> int:
    multiple = padding_multiple(request.traced.group_size)
    low, high = 0, request.longest_tokens // multiple + 1
    while high - low > 1:
        middle = (low + high) // 2
        if needed(target, middle * multiple) <= SAFE_SHARE * request.memory_bytes:
            low = middle
        else:
            high = middle
    return low * multiple


def _as_measurements(found: Measured, machine: str) -> Measurements:
    times: dict[str, dict[int, list[float]]] = {}
    for (target, length), samples in found.samples.of.items():
        times.setdefault(target, {})[length] = samples
    peaks: dict[str, dict[int, int]] = {}
    for (target, length), num_bytes in found.peak_bytes.items():
        peaks.setdefault(target, {})[length] = num_bytes
    return Measurements(times, peaks, found.num_layers, machine, measured_links(found.wires))


def by_torchrun(num_ranks: int, on_gpu: bool, environment: Mapping[str, str]) -> Launch:
    """Ranks on this machine's devices."""

    def launch(arguments: Json, variables: Mapping[str, str]) -> None:
        assignment = Path(arguments["keep"]).with_suffix(".assignment.json")
        assignment.write_text(json.dumps(arguments))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
        command += ["-m", "paradyse_megatron.integration.profile_rank", str(assignment)]
        of_ranks = rank_environment(num_ranks, on_gpu) | dict(environment) | dict(variables)
        done = subprocess.run(command, env=of_ranks, check=False)
        assignment.unlink()
        if done.returncode:
            raise ChildProcessError(f"the ranks that measure ended with code {done.returncode}; see above.")

    return launch
