"""How far fits are from points that they were not made from, beside the paper's random forest on the same points."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from paradyse_megatron.costmodel.fit import Times
from paradyse_megatron.costmodel.fits import AllTimes, Fits
from paradyse_megatron.costmodel.model import CostModel

BEYOND = 4
"""Times the longest fitted length, at which extrapolation is put to the test."""
LEAST_LENGTHS = 5
"""Of a target whose inner lengths are held out."""

Split = Mapping[str, tuple[Times, Times]]
"""Of each target what is fitted and what is tested."""

Predict = Callable[[str, int], float]


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


def inside(times: AllTimes) -> Split:
    """Every second inner length apart, of targets with enough of them."""
    return {name: held_out(of) for name, of in times.items() if len(of) >= LEAST_LENGTHS}


def beyond(times: AllTimes) -> Split:
    """Lengths up to a quarter of the longest, and the longest."""
    splits = {name: extrapolated(of) for name, of in times.items()}
    return {name: parts for name, parts in splits.items() if parts[1]}


def held_out(times: Times) -> tuple[dict[int, Sequence[float]], dict[int, Sequence[float]]]:
    """Every second inner length apart: (to fit, to test)."""
    lengths = sorted(times)
    tested = set(lengths[1:-1:2])
    return {n: times[n] for n in lengths if n not in tested}, {n: times[n] for n in lengths if n in tested}


def extrapolated(times: Times, factor: int = BEYOND) -> tuple[dict[int, Sequence[float]], dict[int, Sequence[float]]]:
    """Lengths up to a `factor`-th of the longest, and those that far beyond: (to fit, to test); empty if too few."""
    lengths = sorted(times)
    below = [n for n in lengths if n * factor <= lengths[-1]]
    if len(below) < 3:
        return {}, {}
    above = [n for n in lengths if n > below[-1] * factor * 0.75]
    return {n: times[n] for n in below}, {n: times[n] for n in above}


def by_fits_inside(traced: CostModel, split: Split) -> Predict:
    """Fitted to what the split says is to be fitted, all targets together."""
    curves = Fits.of(traced, {name: fitted for name, (fitted, _) in split.items()}).curves
    return lambda name, length: curves[name](length)


def by_fits_beyond(traced: CostModel, split: Split, times: AllTimes) -> Predict:
    """Of each target fitted to nothing longer than its own fitted lengths, of no target."""
    ends = {name: max(fitted) for name, (fitted, _) in split.items()}
    by_end = {
        end: Fits.of(traced, {name: {n: of[n] for n in of if n <= end} for name, of in times.items()}).curves
        for end in set(ends.values())
    }
    return lambda name, length: by_end[ends[name]][name](length)


def by_forest(split: Split) -> Predict:
    """The paper's model (arXiv 2511.13198, section 4) from the same points: one forest over options and lengths.

    Raises ImportError without scikit-learn.
    """
    from sklearn.ensemble import RandomForestRegressor

    names = sorted(split)
    rows = [(*_one_hot(names, name), n) for name in names for n in split[name][0]]
    values = [statistics.median(samples) for name in names for samples in split[name][0].values()]
    forest: Any = RandomForestRegressor(n_estimators=100, random_state=0)
    if rows:
        forest.fit(np.array(rows, dtype=float), values)
    return lambda name, n: float(forest.predict(np.array([(*_one_hot(names, name), n)], dtype=float))[0])


def _one_hot(names: Sequence[str], name: str) -> list[float]:
    return [float(name == other) for other in names]


def points(split: Split, predict: Predict) -> Iterator[Point]:
    """What was tested."""
    for name, (_, tested) in split.items():
        for length, samples in tested.items():
            yield Point(name, length, predict(name, length), statistics.median(samples))


def mean_error(tested: Sequence[Point]) -> float | None:
    """Mean absolute relative error; None where nothing was tested."""
    return statistics.fmean(abs(point.error) for point in tested) if tested else None
