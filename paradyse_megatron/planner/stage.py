"""Choosing for the layers of one pipeline stage at one length: what the planner asks, and the twin that answers.

`native.NativeStage` gives the same answers, to the last bit.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from paradyse_megatron.planner.cost import HeadCost
from paradyse_megatron.planner.feasible import least_saved_choice
from paradyse_megatron.planner.head import Variant, best_draft
from paradyse_megatron.planner.problem import Choice, Options, Problem
from paradyse_megatron.planner.sources import Sources


class Weighed(NamedTuple):
    """A way to compute the head, an option index for each layer, and what that takes at one length.

    Attributes:
        head: one of `plan.HEADS`.
        choice: for each layer the index of its option.
        milliseconds: of layers and head.
        peak_bytes: of activations.
        fits: whether that is within the budget.
    """

    head: str
    choice: Choice
    milliseconds: float
    peak_bytes: int
    fits: bool


class Stage(Protocol):
    """A function of the length alone, in tokens."""

    def best(self, tokens: int) -> Weighed:
        """A fast choice that fits; where none does, the one with the lowest peak."""

    def weigh(self, tokens: int, head: str, choice: Choice) -> Weighed:
        """What a given choice takes at this length."""

    def some_fits(self, tokens: int) -> bool:
        """Whether any choice fits."""


class TwinStage:
    """In Python, slow and readable. Integers do not overflow."""

    def __init__(self, sources: Sources, budget_bytes: int, num_in_flight: int):
        self._sources = sources
        self._budget_bytes = budget_bytes
        self._num_in_flight = num_in_flight

    def best(self, tokens: int) -> Weighed:
        """See `Stage`."""
        variants = self._variants(tokens)
        head, choice = best_draft(variants)
        return _weighed(variants[head], head, choice)

    def weigh(self, tokens: int, head: str, choice: Choice) -> Weighed:
        """See `Stage`."""
        return _weighed(self._variants(tokens)[head], head, choice)

    def some_fits(self, tokens: int) -> bool:
        """See `Stage`."""
        return any(least_saved_choice(variant.problem) is not None for variant in self._variants(tokens).values())

    def _variants(self, tokens: int) -> dict[str, Variant]:
        costs = self._sources.at(tokens)
        return {
            name: Variant(
                self._problem(costs.kinds, head),
                head.milliseconds,
            )
            for name, head in costs.heads.items()
        }

    def _problem(self, kinds: tuple[Options, ...], head: HeadCost) -> Problem:
        bound, layers = self._budget_bytes, self._sources.layers
        return Problem(kinds, layers, bound, head.saved_bytes, self._num_in_flight, head.buffer_bytes)


def _weighed(variant: Variant, head: str, choice: Choice) -> Weighed:
    peak = variant.problem.peak_bytes(choice)
    return Weighed(head, choice, variant.milliseconds(choice), peak, peak <= variant.problem.budget_bytes)
