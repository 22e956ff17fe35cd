"""Exact polynomials through what was counted at several lengths."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from paradyse_megatron.costmodel.polynomial import Polynomial


def exact_polynomials(lengths: Sequence[int], counts: Sequence[Sequence[int]], what: str) -> list[Polynomial]:
    """One polynomial for each column of counts.

    The first three lengths give its coefficients; it has to meet the others to the last digit.

    Args:
        lengths: tokens, at least five different ones.
        counts: for each length a row of whole numbers.
        what: names the counts in an error.

    Raises:
        ValueError: rows of unequal length, or a column that is no polynomial of degree 2.
    """
    assert len(set(lengths)) == len(lengths) >= 5
    if len({len(row) for row in counts}) != 1:
        raise ValueError(f"{what}: what is done depends on the length, so that no polynomial describes it.")
    table = np.array(counts, dtype=object).reshape(len(lengths), -1)
    return [_through(lengths, list(column), what) for column in table.T]


def _through(lengths: Sequence[int], values: Sequence[int], what: str) -> Polynomial:
    a, b, c = lengths[:3]
    slope = Fraction(values[1] - values[0], b - a)
    square = (Fraction(values[2] - values[0], c - a) - slope) / (c - b)
    linear = slope - square * (a + b)
    constant = values[0] - linear * a - square * a * a
    for length, value in zip(lengths[3:], values[3:], strict=True):
        if constant + linear * length + square * length * length != value:
            raise ValueError(f"{what}: {value} at {length} tokens is not on the polynomial through {values[:3]}.")
    return Polynomial(float(constant), float(linear), float(square))
