"""From measured times to a curve: monotone between the measured lengths, physical terms beyond them.

Measured medians are made monotone (isotonic regression, weighted by the number of samples) and joined as `Curve` joins
points. Outside, what a layer does consists of parts that do not depend on the length, parts that grow with it and
attention, which grows with its square: non-negative least squares on (1, s, s^2), of relative errors, in which the
points nearest to the border weigh most, scaled to meet the last point. The needed tools are those of SciPy; a fitted
curve is evaluated without it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.polynomial import Polynomial

Times = Mapping[int, Sequence[float]]
"""Milliseconds that were measured, by length in tokens."""


def fit_times(times: Times) -> Curve:
    """The curve of one cost.

    Raises:
        ValueError: nothing was measured.
    """
    if not times:
        raise ValueError("A curve of times needs at least one measured length.")
    lengths = sorted(times)
    medians = [statistics.median(times[length]) for length in lengths]
    values = monotone(medians, [len(times[length]) for length in lengths])
    points = tuple(zip(lengths, values, strict=True))
    return Curve(terms=(_terms(points, points[-1]),), points=points, terms_below=(_terms(points, points[0]),))


def monotone(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest sequence that does not fall, in weighted least squares of logarithms."""
    from scipy.optimize import isotonic_regression

    return [float(value) for value in np.exp(isotonic_regression(np.log(values), weights=weights).x)]


def _terms(points: Sequence[tuple[int, float]], border: tuple[int, float]) -> Polynomial:
    """The polynomial that holds on the other side of `border`, one of the points."""
    from scipy.optimize import nnls

    lengths, values = np.array(points, dtype=float).T
    distance = np.maximum(lengths / border[0], border[0] / lengths)
    weights = 1 / distance / values  # of residuals: a point twice as far counts a quarter
    terms = np.stack([np.ones_like(lengths), lengths, lengths**2], axis=1)
    scale = terms.max(axis=0)
    coefficients = nnls(terms / scale * weights[:, None], values * weights)[0] / scale
    fitted = Polynomial(*map(float, coefficients))
    return fitted * (border[1] / fitted(border[0]))


def mean_error(curve: Any, times: Times) -> float:
    """Mean absolute relative error of `curve`, a function of the length, against the medians of `times`."""
    errors = [abs(curve(length) / statistics.median(samples) - 1) for length, samples in times.items()]
    return sum(errors) / len(errors)


def noise(times: Times) -> float | None:
    """Relative spread of repeated measurements, the median over lengths: no model is closer than about this."""
    spreads = [
        statistics.median(abs(sample / statistics.median(samples) - 1) for sample in samples)
        for samples in times.values()
        if len(samples) > 2
    ]
    return statistics.median(spreads) if spreads else None


def held_out(times: Times) -> tuple[dict[int, Sequence[float]], dict[int, Sequence[float]]]:
    """Every second inner length apart: (to fit, to test)."""
    lengths = sorted(times)
    tested = set(lengths[1:-1:2])
    return {n: times[n] for n in lengths if n not in tested}, {n: times[n] for n in lengths if n in tested}


def extrapolated(times: Times, factor: int = 4) -> tuple[dict[int, Sequence[float]], dict[int, Sequence[float]]]:
    """Lengths up to a `factor`-th of the longest, and those from half of it on: (to fit, to test); empty if too few."""
    lengths = sorted(times)
    below = [n for n in lengths if n * factor <= lengths[-1]]
    if len(below) < 3:
        return {}, {}
    above = [n for n in lengths if n > below[-1] * factor * 0.75]
    return {n: times[n] for n in below}, {n: times[n] for n in above}


def random_forest(times: Mapping[str, Times]) -> Any:
    """The paper's model (arXiv 2511.13198, section 4): one forest over options and lengths. Needs scikit-learn.

    Returns a function of option and length that predicts milliseconds.
    """
    from sklearn.ensemble import RandomForestRegressor

    names = sorted(times)
    rows = [(*_one_hot(names, name), n) for name in names for n in times[name]]
    values = [statistics.median(times[name][n]) for name in names for n in times[name]]
    forest = RandomForestRegressor(n_estimators=100, random_state=0).fit(np.array(rows, dtype=float), values)
    return lambda name, n: float(forest.predict(np.array([(*_one_hot(names, name), n)], dtype=float))[0])


def _one_hot(names: Sequence[str], name: str) -> list[float]:
    return [float(name == other) for other in names]


def is_monotone(values: Sequence[float]) -> bool:
    """Whether no value is below the one before."""
    return all(before <= after for before, after in pairwise(values))
