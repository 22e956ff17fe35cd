"""How far a measured cost model is from the machine: lengths that it was not fitted to, and memory.

One profile a group size; the times that it measured are then fitted in part and compared with the rest, as
`costmodel.measured` does it for the file's own `accuracy`, but point by point. Memory is weighed for every option.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paradyse_megatron.bench.costs import measured_over, traced_here
from paradyse_megatron.bench.weighing import weighed
from paradyse_megatron.costmodel import fit, validation
from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.peaks import expected_peak, process_overhead
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.validation import Point
from paradyse_megatron.planner.jsonfile import Json

LONGEST_TOKENS = 16384
OPTIONS = (
    "tp_sp tp_sp+selective tp_sp+full ulysses ulysses/tp_sp ulysses+full ring ring+full upipe upipe2 upipe+full "
    "metp metp+full"
).split()
"""Timed, as far as the model can follow them: each strategy, and each way to recompute. Of the 60 others each would get
too few samples within minutes."""
_KEYS = {"time": ("time", "milliseconds"), "memory": ("memory",)}
RANK_BYTES = 8 * 2**30
"""For all ranks together when memory is weighed."""


def bench(
    shape: ModelShape, group_sizes: Sequence[int], budget_seconds: float, folder: Path, kinds: Collection[str]
) -> Json:
    """Figures and points of each group size; `kinds` are "time", "memory" or both."""
    found: Json = {"budget_seconds": budget_seconds, "longest_tokens": LONGEST_TOKENS}
    for num_ranks in group_sizes:
        if "time" in kinds:
            place = folder / f"p{num_ranks}"
            place.mkdir(parents=True, exist_ok=True)
            how_long = budget_seconds, LONGEST_TOKENS, place
            traced, measured = measured_over(shape, num_ranks, None, *how_long, OPTIONS, weighs=False)
        else:
            traced, _, _ = traced_here(shape, num_ranks)
            from paradyse_megatron.profiling.stack import stack_layers

            measured = Measurements({}, num_layers=stack_layers(shape))
        if "memory" in kinds:
            measured = replace(measured, peaks=weighed(traced, measured.num_layers, RANK_BYTES // num_ranks))
        figures = assess(traced, measured)
        found[f"group_size_{num_ranks}"] = {key: figures[key] for kind in kinds for key in _KEYS[kind]}
    return found


def assess(traced: CostModel, found: Measurements) -> Json:
    """Errors of times and memory, each with the points that it is the mean of."""
    times = found.times
    inside, beyond = validation.inside(times), validation.beyond(times)
    memory = list(_memory(traced, found, corrected=False))
    corrected = list(_memory(traced, found, corrected=True))
    tested = {
        "held_out": validation.points(inside, validation.by_fits_inside(traced, inside)),
        "held_out_by_random_forest": validation.points(inside, validation.by_forest(inside)),
        "beyond_4x": validation.points(beyond, validation.by_fits_beyond(traced, beyond, times)),
        "beyond_4x_by_random_forest": validation.points(beyond, validation.by_forest(beyond)),
    }
    noises = [noise for noise in map(fit.noise, times.values()) if noise is not None]
    return {
        "time": {"noise": _median(noises)} | {name: _summary(list(points)) for name, points in tested.items()},
        "memory": {
            "process_overhead_bytes": round(process_overhead(traced, found)),
            "traced": _summary(memory),
            "corrected_by_other_lengths": _summary(corrected),
        },
        "milliseconds": {name: {n: statistics.median(of[n]) for n in of} for name, of in times.items()},
    }


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _memory(traced: CostModel, found: Measurements, corrected: bool) -> Iterator[Point]:
    """Peaks of the stack of layers as traced, or as the other lengths correct that; a process's overhead apart."""
    for option, peaks in found.peaks.items():
        for length, peak in peaks.items():
            if option in traced.options and len(peaks) > 1:
                yield Point(option, length, expected_peak(option, length, traced, found, corrected), peak)


def _summary(points: Sequence[Point]) -> dict[str, Any]:
    """Mean absolute error, the furthest under and over, and the points behind them; None where there are none."""
    errors = [point.error for point in points]
    return {
        "mape": validation.mean_error(points),
        "furthest_under": min(errors, default=None),
        "furthest_over": max(errors, default=None),
        "num_points": len(points),
        "points": [point._asdict() for point in points],
    }
