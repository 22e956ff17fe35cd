"""One way to configure a run, as far as time and memory are concerned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from paradyse_megatron.costmodel.average import AverageLayer
from paradyse_megatron.layouts.padding import pad_to_multiple
from paradyse_megatron.planner.memory import peak_bytes
from paradyse_megatron.planner.planner import Planner

MAX_KNOTS = 64
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
class Uniform:
    """A static choice: one option in all layers, whatever the length.

    As a planner with this option alone would decide, but in closed form, as all layers are the average one.

    Attributes:
        name, kind: see `Choice`.
        costs: of the option on its group.
        option: its text.
        static_bytes: weights, gradients, optimizer.
        budget_bytes: of a GPU; None for no limit.
        heads: ways to compute the loss head, preferred first.
    """

    name: str
    kind: str
    costs: AverageLayer
    option: str
    static_bytes: int
    budget_bytes: int | None
    heads: tuple[str, ...]

    @property
    def group_size(self) -> int:
        """See `Choice`."""
        return self.costs.group_size

    def milliseconds(self, seq_length: int) -> float:
        """See `Choice`."""
        padded = pad_to_multiple(seq_length, self.group_size)
        head = next((head for head in self.heads if self._fits(padded, head)), self.heads[-1])
        layer = self.costs.predict(self.option, padded).milliseconds
        return self.costs.shape.num_layers * layer + self.costs.predict_head(padded, head).milliseconds

    def longest(self, limit: int) -> int:
        """See `Choice`."""
        return longest_fitting(
            lambda length: any(self._fits(pad_to_multiple(length, self.group_size), head) for head in self.heads), limit
        )

    def _fits(self, padded_length: int, head: str) -> bool:
        if self.budget_bytes is None:
            return True
        layer = self.costs.predict(self.option, padded_length)
        at_top = self.costs.predict_head(padded_length, head)
        layers = [layer] * self.costs.shape.num_layers
        peak = peak_bytes(layers, at_top.saved_bytes, head_buffer_bytes=at_top.buffer_bytes)
        return self.static_bytes + peak <= self.budget_bytes


@dataclass(frozen=True)
class Dynamic:
    """The plan by length of a planner of ours."""

    name: str
    group_size: int
    planner: Planner

    kind = "dynamic"

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
