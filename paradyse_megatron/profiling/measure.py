"""Times and weighs every option and the loss head on this machine's ranks; one rank decides what comes next.

What was measured is kept in a file as it comes, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.jsonfile import Json, check_keys, read_object, write_object
from paradyse_megatron.planner.plan import HEADS
from paradyse_megatron.profiling import weighing
from paradyse_megatron.profiling.head import Head
from paradyse_megatron.profiling.schedule import Point, Samples, Schedule
from paradyse_megatron.profiling.stack import LayerStack
from paradyse_megatron.profiling.wires import measure_wires

SCHEMA = 1
SECONDS_BETWEEN_SAVES = 5.0
HEAD_TARGETS = tuple(f"head:{head}" for head in HEADS)
"""How the two loss heads are named among what is measured."""


@dataclass
class Measured:
    """What a profile found.

    Attributes:
        samples: milliseconds of one layer, or of the head, by point.
        peak_bytes: of the stack of `num_layers` layers, or of the head, by point.
        wires: of each kind of collective, `latency_us` and `bytes_per_s`.
        num_layers: of the stack that was measured.
    """

    samples: Samples = field(default_factory=Samples)
    peak_bytes: dict[Point, int] = field(default_factory=dict)
    wires: dict[str, dict[str, float]] = field(default_factory=dict)
    num_layers: int = 0


@dataclass(frozen=True)
class Assignment:
    """What to profile.

    Attributes:
        shape: of the model.
        batch: sequences in a micro-batch.
        longest: by canonical option text, and for the head, the longest length to try, in tokens.
        shortest: length to begin with.
        budget_seconds: for timing.
        weigh_seconds: for weighing memory, about.
        keep: file that holds what was measured so far.
        weighs: whether memory is weighed.
        transformer_impl: whose layers, as Megatron's argument of that name.
    """

    shape: ModelShape
    batch: int
    longest: Mapping[str, int]
    shortest: int
    budget_seconds: float
    weigh_seconds: float
    keep: str | os.PathLike[str]
    weighs: bool = True
    transformer_impl: str = "local"


Progress = Callable[[float, str], None]
"""Told the share that is done, and what is under way."""


def profile(assignment: Assignment, progress: Progress) -> Measured:
    """Collective over all ranks, which form one tensor-parallel group; complete on rank 0 only."""
    stack = LayerStack(assignment.shape, assignment.batch, assignment.transformer_impl)
    head = Head(assignment.shape, assignment.batch)
    measured = _resumed(assignment) if _is_first() else Measured()
    measured.num_layers = len(stack.layers)

    def weigh(point: Point) -> int:
        part, name = _part(stack, head, point[0])
        return part.peak_bytes(name, point[1])

    def clock(point: Point) -> float:
        part, name = _part(stack, head, point[0])
        return part.milliseconds(name, point[1])

    if not _told(measured.wires):
        measured.wires = measure_wires(stack.group)
    _take_times(assignment, measured, clock, progress)
    if assignment.weighs:
        _take_weights(assignment, measured, weigh, progress)
    return measured


def _part(stack: LayerStack, head: Head, target: str) -> tuple[Any, str]:
    return (head, target.partition(":")[2]) if target in HEAD_TARGETS else (stack, target)


def _take_times(
    assignment: Assignment,
    measured: Measured,
    clock: Callable[[Point], float],
    progress: Progress,
) -> None:
    """The first rank follows the schedule, the others the first rank."""
    targets, budget = tuple(assignment.longest), assignment.budget_seconds
    bounds = (assignment.shortest, max(assignment.longest.values()), dist.get_world_size())
    schedule = Schedule(
        targets, *bounds, lambda target, length: length <= assignment.longest[target], budget, measured.samples
    )
    for target in targets:  # what is made on first use: buffers, kernels, connections
        clock((target, schedule.rungs[0]))
    begin = saved = time.monotonic()
    while True:
        spent = time.monotonic() - begin
        point = _told(schedule.next(budget - spent) if _is_first() else None)
        if point is None:
            break
        progress(min(1.0, spent / budget), f"{point[0]} at {point[1]:,} tokens")
        measured.samples.add(point, clock(point))
        schedule.took(point, time.monotonic() - begin - spent)
        if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
            _keep(assignment, measured)
            saved = time.monotonic()
    _keep(assignment, measured)


def _take_weights(
    assignment: Assignment, measured: Measured, weigh: Callable[[Point], int], progress: Progress
) -> None:
    """Memory of each target; the first rank says at which lengths."""
    begin, seconds = time.monotonic(), assignment.weigh_seconds
    rounds = weighing.rounds(assignment.longest, dist.get_world_size(), seconds)
    while True:
        points: list[Point] | None = _told(next(rounds, None) if _is_first() else None)
        if points is None:
            break
        for point in _told([point for point in points if point not in measured.peak_bytes]):
            progress(min(1.0, (time.monotonic() - begin) / seconds), f"memory of {point[0]} at {point[1]:,} tokens")
            measured.peak_bytes[point] = weigh(point)
        _keep(assignment, measured)
    measured.peak_bytes = weighing.that_count(measured.peak_bytes)
    _keep(assignment, measured)


def _is_first() -> bool:
    return dist.get_rank() == 0


def _told(value: Any) -> Any:
    """What the first rank says."""
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def _identity(assignment: Assignment) -> Json:
    """What must be the same for samples to be taken up again."""
    return {
        "model": assignment.shape.as_dict(),
        "micro_batch_size": assignment.batch,
        "group_size": dist.get_world_size(),
        "shortest": assignment.shortest,
        "longest": dict(assignment.longest),
        "transformer_impl": assignment.transformer_impl,
    }


def _keep(assignment: Assignment, measured: Measured) -> None:
    if _is_first():
        content = {
            "of": _identity(assignment),
            "milliseconds": [[*point, times] for point, times in measured.samples.of.items()],
            "peak_bytes": [[*point, num_bytes] for point, num_bytes in measured.peak_bytes.items()],
            "wires": measured.wires,
            "num_layers": measured.num_layers,
        }
        write_object(assignment.keep, SCHEMA, content)


def _resumed(assignment: Assignment) -> Measured:
    """What an interrupted run of the same assignment had measured."""
    if not os.path.exists(assignment.keep):
        return Measured()
    of, measured = read_kept(assignment.keep)
    return measured if of == _identity(assignment) else Measured()


def read_kept(path: str | os.PathLike[str]) -> tuple[Json, Measured]:
    """What a file of measurements is of, and what it holds. Raises ValueError."""
    found = read_object(path, "file of measurements", SCHEMA)
    check_keys(
        found, {"of", "milliseconds", "peak_bytes", "wires", "num_layers"}, set(), f"File of measurements {path}"
    )
    samples = Samples({(target, length): times for target, length, times in found["milliseconds"]})
    peaks = {(target, length): num_bytes for target, length, num_bytes in found["peak_bytes"]}
    return found["of"], Measured(samples, peaks, found["wires"], found["num_layers"])
