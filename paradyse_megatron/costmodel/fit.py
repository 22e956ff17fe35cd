"""From measured times to a curve: monotone between the measured lengths, physical terms beyond them.

What is expected of a length, before anything is measured, are polynomials up to the length's square: the described
machine's, corrected (`calibration`), or where there is no description those that fit the points by non-negative least
squares of relative errors. What is measured at a length, over that, is a ratio that lengths near by share: as a random
walk over octaves of length, seen with the error that repeated samples have, whose likeliest course is taken. So what
varies from one point to the next without a reason is not believed. Medians times ratios are made monotone (isotonic
regression); between the points the curve has the shape of what was expected, and beyond them its terms, to scale.

The needed tools are those of SciPy; a fitted curve is evaluated without it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.polynomial import Polynomial

Times = Mapping[int, Sequence[float]]
"""Milliseconds that were measured, by length in tokens."""

WANDERS = 0.1
"""Standard deviation by which the ratio changes over an octave of length."""
UNKNOWN_NOISE = 0.06
"""Median deviation of a sample, where too few were taken to tell."""
LEAST_ERROR = 0.003
"""Relative error of a median, however alike the samples are."""
STEPS_PER_OCTAVE = 4
"""Points of a curve, so that joining them by powers of the length keeps the shape."""


def fit_times(times: Times, expected: Curve | None = None) -> Curve:
    """The curve of one cost.

    Args:
        times: samples by length.
        expected: polynomials without points; None where nothing is known.

    Raises:
        ValueError: nothing was measured.
    """
    if not times:
        raise ValueError("A curve of times needs at least one measured length.")
    lengths = sorted(times)
    medians = [statistics.median(times[length]) for length in lengths]
    before = expected or Curve((_polynomial(lengths, medians),))
    ratios = [math.log(median / before(length)) for length, median in zip(lengths, medians, strict=True)]
    ratios = likeliest(lengths, ratios, _errors(times))
    values = [before(length) * math.exp(ratio) for length, ratio in zip(lengths, ratios, strict=True)]
    values = monotone(values, [len(times[length]) for length in lengths])
    points = _filled(list(zip(lengths, values, strict=True)), before)
    below, beyond = (
        tuple(term * (value / before(at)) for term in before.terms) for at, value in (points[0], points[-1])
    )
    return Curve(terms=beyond, points=points, terms_below=below)


def likeliest(lengths: Sequence[int], seen: Sequence[float], errors: Sequence[float]) -> list[float]:
    """The likeliest course of a random walk over the logarithm of the length, seen with these standard errors."""
    precision, number = 1 / np.square(errors), len(lengths)
    information = np.diag(precision)
    for i, (low, high) in enumerate(pairwise(lengths)):
        step = np.zeros(number)
        step[i], step[i + 1] = -1, 1
        information += np.outer(step, step) / (WANDERS**2 * math.log2(high / low))
    return [float(value) for value in np.linalg.solve(information, precision * np.array(seen))]


def monotone(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest sequence that does not fall, in weighted least squares of logarithms."""
    from scipy.optimize import isotonic_regression

    return [float(value) for value in np.exp(isotonic_regression(np.log(values), weights=weights).x)]


def _errors(times: Times) -> list[float]:
    """Standard error of the median at each length, relative, by how far samples of all lengths lie apart."""
    error = sample_error(times)
    return [max(LEAST_ERROR, median_error(error, len(times[length]))) for length in sorted(times)]


def sample_error(samples: Mapping[Any, Sequence[float]]) -> float:
    """Relative standard error of one sample, by how far samples of the same point lie apart."""
    spread = noise(samples)
    return 1.48 * (UNKNOWN_NOISE if spread is None else spread)  # of a normal distribution, from its median deviation


def median_error(error: float, number: int) -> float:
    """Standard error of the median of so many samples that each have that one."""
    return 1.25 * error / math.sqrt(number)


def _filled(points: Sequence[tuple[int, float]], expected: Curve) -> tuple[tuple[int, float], ...]:
    """Points between which there is little room, in the shape of what was expected; they never fall."""
    filled = list(points[:1])
    for (low, at_low), (high, at_high) in pairwise(points):
        steps = math.ceil(STEPS_PER_OCTAVE * math.log2(high / low))
        first, last = math.log(at_low / expected(low)), math.log(at_high / expected(high))
        for step in range(1, steps):
            length = round(low * (high / low) ** (step / steps))
            share = math.log(length / low) / math.log(high / low)
            value = expected(length) * math.exp(first + share * (last - first))
            if filled[-1][0] < length < high:
                filled.append((length, min(max(value, filled[-1][1]), at_high)))
        filled.append((high, at_high))
    return tuple(filled)


def _polynomial(lengths: Sequence[int], values: Sequence[float]) -> Polynomial:
    """Of non-negative terms, nearest to all points in relative errors."""
    from scipy.optimize import nnls

    tokens = np.array(lengths, dtype=float)
    terms = np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1)
    scale = terms.max(axis=0)
    found = nnls(terms / scale / np.array(values)[:, None], np.ones_like(tokens))[0] / scale
    return Polynomial(*map(float, found))


def noise(times: Mapping[Any, Sequence[float]]) -> float | None:
    """Relative spread of repeated measurements, the median over points: no model is closer than about this."""
    spreads = [
        statistics.median(abs(sample / statistics.median(samples) - 1) for sample in samples)
        for samples in times.values()
        if len(samples) > 2
    ]
    return statistics.median(spreads) if spreads else None
