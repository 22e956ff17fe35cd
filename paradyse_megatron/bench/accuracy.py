"""How far a measured cost model is from the machine: lengths that it was not fitted to, and memory.

One profile a group size; the times that it measured are then fitted in part and compared with the rest, as
`costmodel.measured` does it for the file's own `accuracy`, but point by point. Memory is weighed for every option.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from paradyse_megatron.bench.costs import measured_over
from paradyse_megatron.bench.weighing import weighed
from paradyse_megatron.costmodel import fit
from paradyse_megatron.costmodel.fit import Times
from paradyse_megatron.costmodel.measured import described
from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.peaks import expected_peak, process_overhead
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.jsonfile import Json

LONGEST_TOKENS = 16384
OPTIONS = (
    "tp_sp tp_sp+selective tp_sp+full ulysses ulysses/tp_sp ulysses+full ring ring+full upipe upipe2 upipe+full "
    "metp metp+full"
).split()
"""Timed, as far as the model can follow them: each strategy, and each way to recompute. Of the 60 others each would get
too few samples within minutes."""
RANK_BYTES = 8 * 2**30
"""For all ranks together when memory is weighed."""
BEYOND = 4
"""Times the longest fitted length, at which extrapolation is put to the test."""


class Point(NamedTuple):
    """A prediction beside what was measured, in milliseconds or in bytes.

    Attributes:
        target: an option's text, "head:whole" or "head:chunked".
        length: in tokens.
    """

    target: str
    length: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative to what was measured; negative where the prediction is under."""
        return self.predicted / self.measured - 1


def bench(shape: ModelShape, group_sizes: Sequence[int], budget_seconds: float, folder: Path) -> Json:
    """Figures and points of each group size."""
    found: Json = {"budget_seconds": budget_seconds, "longest_tokens": LONGEST_TOKENS}
    for num_ranks in group_sizes:
        place = folder / f"p{num_ranks}"
        place.mkdir(parents=True, exist_ok=True)
        how_long = budget_seconds, LONGEST_TOKENS, place
        traced, measured = measured_over(shape, num_ranks, None, *how_long, OPTIONS, weighs=False)
        peaks = weighed(traced, measured.num_layers, RANK_BYTES // num_ranks)
        found[f"group_size_{num_ranks}"] = assess(traced, replace(measured, peaks=peaks))
    return found


def assess(traced: CostModel, found: Measurements) -> Json:
    """Errors of times and memory, each with the points that it is the mean of."""
    held_out = {name: fit.held_out(times) for name, times in found.times.items() if len(times) >= 5}
    beyond = {name: fit.extrapolated(times, BEYOND) for name, times in found.times.items()}
    beyond = {name: parts for name, parts in beyond.items() if parts[1]}
    memory = list(_memory(traced, found, corrected=False))
    corrected = list(_memory(traced, found, corrected=True))
    return {
        "time": {
            "noise": _median([noise for noise in map(fit.noise, found.times.values()) if noise is not None]),
            "held_out": _summary(list(_times(held_out, _own(held_out, traced)))),
            "held_out_by_random_forest": _summary(list(_times(held_out, _forest(held_out)))),
            "beyond_4x": _summary(list(_times(beyond, _own(beyond, traced)))),
            "beyond_4x_by_random_forest": _summary(list(_times(beyond, _forest(beyond)))),
        },
        "memory": {
            "process_overhead_bytes": round(process_overhead(traced, found)),
            "traced": _summary(memory),
            "corrected_by_other_lengths": _summary(corrected),
        },
        "milliseconds": {name: {n: statistics.median(times[n]) for n in times} for name, times in found.times.items()},
    }


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


Split = Mapping[str, tuple[Times, Times]]
"""Of each target what is fitted and what is tested."""

Predict = Callable[[str, int], float]


def _own(split: Split, traced: CostModel) -> Predict:
    curves = {name: fit.fit_times(fitted, described(traced, name)) for name, (fitted, _) in split.items()}
    return lambda name, length: curves[name](length)


def _forest(split: Split) -> Predict:
    if not split:
        return lambda name, length: 0.0
    predict: Predict = fit.random_forest({name: fitted for name, (fitted, _) in split.items()})
    return predict


def _times(split: Split, predict: Predict) -> Iterator[Point]:
    for name, (_, tested) in split.items():
        for length, samples in tested.items():
            yield Point(name, length, predict(name, length), statistics.median(samples))


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
        "mape": statistics.fmean(map(abs, errors)) if errors else None,
        "furthest_under": min(errors, default=None),
        "furthest_over": max(errors, default=None),
        "num_points": len(points),
        "points": [point._asdict() for point in points],
    }
