"""Which loss head goes with which options of the layers.

The chunked head computes the logits twice, so the whole one is preferred: chunked is taken where only it fits the
budget, or where the memory that it leaves to the layers makes them, and all together, faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from paradyse_megatron.planner.feasible import least_memory_choice
from paradyse_megatron.planner.problem import Choice, Problem
from paradyse_megatron.planner.search import greedy_choice


@dataclass(frozen=True)
class Variant:
    """The planning problem at one length with one way to compute the head.

    Attributes:
        problem: of the layers, with this head's bytes.
        head_ms: time of the head.
    """

    problem: Problem
    head_ms: float

    def milliseconds(self, choice: Choice) -> float:
        """Time of the layers under `choice` and of the head."""
        return self.problem.milliseconds(choice) + self.head_ms

    def best_choice(self) -> Choice:
        """A fast choice that fits, or the one with the lowest peak where none does."""
        choice = greedy_choice(self.problem)
        return least_memory_choice(self.problem) if choice is None else choice

    def is_fastest(self, choice: Choice) -> bool:
        """Whether no layer has a faster option."""
        least = [min(cost.milliseconds for cost in options) for options in self.problem.kinds]
        chosen = zip(self.problem.costs(choice), self.problem.layers, strict=True)
        return all(cost.milliseconds <= least[kind] for cost, kind in chosen)


class Draft(NamedTuple):
    """A way to compute the head (`plan.HEADS`), and for each layer the index of its option."""

    head: str
    choice: Choice


def best_draft(variants: Mapping[str, Variant]) -> Draft:
    """The best plan over the heads in `variants`, which has "whole"; where none fits, the one with the lowest peak."""
    whole = variants["whole"]
    best = Draft("whole", whole.best_choice())
    if len(variants) == 1 or (whole.problem.fits(best.choice) and whole.is_fastest(best.choice)):
        return best
    chunked = Draft("chunked", variants["chunked"].best_choice())
    return chunked if _is_better(chunked, best, variants) else best


def _is_better(chunked: Draft, whole: Draft, variants: Mapping[str, Variant]) -> bool:
    mine, theirs = variants["chunked"], variants["whole"]
    fits, whole_fits = mine.problem.fits(chunked.choice), theirs.problem.fits(whole.choice)
    if fits != whole_fits:
        return fits
    if not fits:
        return mine.problem.peak_bytes(chunked.choice) < theirs.problem.peak_bytes(whole.choice)
    faster_layers = mine.problem.milliseconds(chunked.choice) < theirs.problem.milliseconds(whole.choice)
    return faster_layers and mine.milliseconds(chunked.choice) < theirs.milliseconds(whole.choice)
