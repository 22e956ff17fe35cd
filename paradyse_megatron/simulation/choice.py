"""One way to configure a run, as far as time and memory are concerned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from paradyse_megatron.planner.planner import Planner

MAX_KNOTS = 192
"""Lengths at which a choice's time is worked out where there are more; between them it is interpolated, both on a
logarithmic scale, which errs by less than 0.5 % for sums of a constant, a linear and a quadratic term."""


class Choice(Protocol):
    """A configuration of all layers, fixed or by length."""

    @property
    def name(self) -> str:
        """As a user would write it."""

    @property
    def kind(self) -> str:
        """ "dynamic", "static" (one of our strategies), "megatron" (what Megatron has without us)."""

    @property
    def group_size(self) -> int:
        """GPUs that compute one sequence together."""

    def milliseconds(self, seq_length: int) -> float:
        """Forward and backward of one sequence."""

    def longest(self, limit: int) -> int:
        """The longest sequence of at most `limit` tokens that fits; 0 for none."""


@dataclass(frozen=True)
class Planned:
    """What a planner of ours decides: with one option a static choice, with all of them the dynamic plan."""

    name: str
    kind: str
    group_size: int
    planner: Planner

    def milliseconds(self, seq_length: int) -> float:
        """See `Choice`."""
        predicted = self.planner.plan(seq_length).predicted_ms
        assert predicted is not None
        return predicted

    def longest(self, limit: int) -> int:
        """See `Choice`."""
        return self.planner.largest_length(limit)


def times(choice: Choice, lengths: np.ndarray) -> np.ndarray:
    """Milliseconds of each length (float64), NaN for those that do not fit."""
    found = np.full(len(lengths), np.nan)
    fits = lengths <= choice.longest(int(lengths.max()))
    if fits.any():
        knots = _knots(lengths[fits])
        values = [choice.milliseconds(int(knot)) for knot in knots]
        found[fits] = np.exp(np.interp(np.log(lengths[fits]), np.log(knots), np.log(values)))
    return found


def _knots(lengths: np.ndarray) -> np.ndarray:
    different = np.unique(lengths)
    if len(different) <= MAX_KNOTS:
        return different
    return np.unique(np.rint(np.geomspace(different[0], different[-1], MAX_KNOTS)).astype(np.int64))


def longest_fitting(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number of at most `limit` that fits, where less always fits if more does; 0 for none."""
    if fits(limit):
        return limit
    fitting, too_long = 0, limit
    while too_long - fitting > 1:
        middle = (fitting + too_long) // 2
        fitting, too_long = (middle, too_long) if fits(middle) else (fitting, middle)
    return fitting
