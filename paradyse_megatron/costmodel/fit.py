"""From measured times to a curve: monotone between the measured lengths, physical terms beyond them.

Measured medians are made monotone (isotonic regression, weighted by the number of samples) and joined as `Curve` joins
points. Outside, what a layer does consists of parts that do not depend on the length, parts that grow with it and
attention, which grows with its square: non-negative least squares on (1, s, s^2), of relative errors, in which the
points nearest to the border weigh most, scaled to meet the last point. Far beyond the measured lengths a part may come
to count that was too small to be measured; there the described machine, corrected by what was measured, is taken in
with little weight. The needed tools are those of SciPy; a fitted curve is evaluated without it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.polynomial import Polynomial

Times = Mapping[int, Sequence[float]]
"""Milliseconds that were measured, by length in tokens."""

Described = Callable[[int], float]
"""Milliseconds that a machine's description gives for a length."""

FAR = (8, 64)
"""Times the longest measured length, where the described machine is taken in."""
WEIGHT_OF_FAR = 0.03
"""Of one such length; the longest measured one has 1."""
FASTEST = 0.5
"""No machine takes less than this share of the work that is described for it."""


def fit_times(times: Times, described: Described | None = None) -> Curve:
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
    far = () if described is None else _far_points(points, described)
    return Curve(terms=(_terms(points, points[-1], far),), points=points, terms_below=(_terms(points, points[0]),))


def monotone(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest sequence that does not fall, in weighted least squares of logarithms."""
    from scipy.optimize import isotonic_regression

    return [float(value) for value in np.exp(isotonic_regression(np.log(values), weights=weights).x)]


def corrected(described: Sequence[float], measured: Sequence[float]) -> tuple[float, float]:
    """The machine's (a, b) in measured = a + b x described, both milliseconds, by least squares of relative errors.

    a, what every layer takes however short it is, is at least 0; b, how much slower the machine works, `FASTEST`.
    """
    from scipy.optimize import nnls

    values = np.array(measured, dtype=float)
    work = np.array(described, dtype=float) / values
    overhead, slower = nnls(np.stack([1 / values, work], axis=1), np.ones_like(values))[0]
    if slower < FASTEST:
        slower = FASTEST
        overhead = nnls((1 / values)[:, None], 1 - slower * work)[0][0]
    return float(overhead), float(slower)


def _far_points(points: Sequence[tuple[int, float]], described: Described) -> tuple[tuple[int, float], ...]:
    overhead, slower = corrected([described(length) for length, _ in points], [value for _, value in points])
    lengths = [factor * points[-1][0] for factor in FAR]
    return tuple((length, overhead + slower * described(length)) for length in lengths)


def _terms(
    points: Sequence[tuple[int, float]], border: tuple[int, float], far: Sequence[tuple[int, float]] = ()
) -> Polynomial:
    """The polynomial that holds on the other side of `border`, one of the points."""
    from scipy.optimize import nnls

    lengths, values = np.array([*points, *far], dtype=float).T
    distance = np.maximum(lengths / border[0], border[0] / lengths)
    weights = 1 / distance  # of residuals: a point twice as far counts a quarter
    weights[len(points) :] = WEIGHT_OF_FAR
    weights /= values
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
