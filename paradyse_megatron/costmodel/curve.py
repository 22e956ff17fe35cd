"""A cost as a function of length: interpolated between measured points, the largest of some polynomials elsewhere."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.planner.sources import Parts

LONGEST = 4_194_304
"""Tokens up to which every prediction of an accepted file is finite."""
_GRID = [int(2 ** (step / 2)) for step in range(2 * LONGEST.bit_length() - 1)]
_CONTINUOUS = 1e-6


@dataclass(frozen=True)
class Curve:
    """A cost that never falls with length.

    From the first to the last point, neighbours are joined by a power of the length (a line where both axes are
    logarithmic): monotone, through every point, and exact for the powers that costs consist of.

    Attributes:
        terms: polynomials, the largest of which holds beyond the last point; everywhere when there are no points.
        points: measured (tokens, value), ascending, values above 0.
        terms_below: as `terms`, before the first point; empty when there are no points.
    """

    terms: tuple[Polynomial, ...]
    points: tuple[tuple[int, float], ...] = ()
    terms_below: tuple[Polynomial, ...] = ()

    def __call__(self, seq_length: int) -> float:
        """Value at s = `seq_length` tokens."""
        if not self.points or seq_length > self.points[-1][0]:
            return _largest(self.terms, seq_length)
        if seq_length < self.points[0][0]:
            return _largest(self.terms_below, seq_length)
        return self._between(seq_length)

    def parts(self) -> Parts:
        """As plain numbers, for the planner's evaluation in C++ (`csrc/planner/curves.hpp`)."""
        return tuple(t.terms for t in self.terms), self.points, tuple(t.terms for t in self.terms_below)

    def _between(self, seq_length: int) -> float:
        after = bisect.bisect_left(self.points, (seq_length, -math.inf))
        length, value = self.points[after]
        if length == seq_length:
            return value
        earlier, lower = self.points[after - 1]
        share = math.log(seq_length / earlier) / math.log(length / earlier)
        return lower * (value / lower) ** share

    def is_within(self, other: Curve) -> bool:
        """Whether it is nowhere above the other one, but for rounding."""
        return all(self(length) <= other(length) * (1 + _CONTINUOUS) for length in _GRID)

    def fault(self) -> str | None:
        """What is wrong with it as a cost, as a clause; None when nothing is."""
        if not self.terms or bool(self.points) != bool(self.terms_below):
            return "has no 'terms', or points without 'terms_below', or these without points"
        for (earlier, lower), (length, value) in pairwise(self.points):
            if not earlier < length or not 0 < lower <= value:
                return f"has points that are not ascending, at {length} tokens"
        values = [self(length) for length in _GRID]
        if not all(map(math.isfinite, values)):
            return f"is not finite at {LONGEST} tokens"
        if values[0] < 0:
            return f"is {values[0]} at 1 token, but no cost is negative"
        falling = next((at for at, (a, b) in zip(_GRID[1:], pairwise(values), strict=True) if b < a * (1 - 1e-9)), None)
        if falling is not None:
            return f"falls before {falling} tokens, but no cost falls with length"
        return self._jump()

    def _jump(self) -> str | None:
        for terms, point in ((self.terms_below, self.points[:1]), (self.terms, self.points[-1:])):
            for length, value in point:
                if abs(_largest(terms, length) - value) > _CONTINUOUS * value:
                    return f"jumps at {length} tokens, where its points and its polynomials meet"
        return None


def simplified(terms: Iterable[Polynomial]) -> tuple[Polynomial, ...]:
    """Without those that another one bounds at every length; of equal ones the first."""
    kept: list[Polynomial] = []
    for term in sorted(set(terms), key=lambda term: term(LONGEST), reverse=True):
        if not any(term.upper_bound(other) == other for other in kept):
            kept.append(term)
    highest = {max(kept, key=lambda term: term(length)) for length in _GRID}
    return tuple(term for term in kept if term in highest)


def _largest(terms: tuple[Polynomial, ...], seq_length: int) -> float:
    return max(term(seq_length) for term in terms)
