"""Which loss head goes with which options of the layers.

The chunked head computes the logits twice, so the whole one is preferred: chunked is taken where only it fits the
budget, or where the memory that it leaves to the layers makes them, and all together, faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from paradyse_megatron.planner.bounds import least_milliseconds
from paradyse_megatron.planner.cost import Cost
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

    def fastest_choice(self) -> Choice:
        """The fastest option everywhere, whether it fits or not."""
        fastest = [min(_axes(cost, i) for i, cost in enumerate(options))[-1] for options in self.problem.kinds]
        return tuple(fastest[kind] for kind in self.problem.layers)


class Draft(NamedTuple):
    """A way to compute the head (`plan.HEADS`), and for each layer the index of its option."""

    head: str
    choice: Choice


def best_draft(variants: Mapping[str, Variant]) -> Draft:
    """The best plan over the heads in `variants`, which has "whole"; where none fits, the one with the lowest peak."""
    fastest = Draft("whole", variants["whole"].fastest_choice())
    if variants["whole"].problem.fits(fastest.choice):
        return fastest
    found = _fitting(variants)
    if found:
        return found[0] if len(found) == 1 or not _is_better(found[1], found[0], variants) else found[1]
    leanest = [Draft(head, least_memory_choice(variant.problem)) for head, variant in variants.items()]
    return min(leanest, key=lambda draft: variants[draft.head].problem.peak_bytes(draft.choice))


def _fitting(variants: Mapping[str, Variant]) -> list[Draft]:
    """What fits with each head, whole first; left out is whole where a bound tells that chunked is better."""
    found: list[Draft] = []
    for head, variant in reversed(list(variants.items())):
        if head == "whole" and found and _cannot_beat(variant, variants[found[0].head], found[0].choice):
            continue
        choice = greedy_choice(variant.problem)
        if choice is not None:
            found.insert(0, Draft(head, choice))
    return found


def _cannot_beat(whole: Variant, chunked: Variant, choice: Choice) -> bool:
    least_ms = least_milliseconds(whole.problem)
    faster_layers = chunked.problem.milliseconds(choice) < least_ms
    return faster_layers and chunked.milliseconds(choice) < least_ms + whole.head_ms


def _is_better(chunked: Draft, whole: Draft, variants: Mapping[str, Variant]) -> bool:
    mine, theirs = variants["chunked"], variants["whole"]
    faster_layers = mine.problem.milliseconds(chunked.choice) < theirs.problem.milliseconds(whole.choice)
    return faster_layers and mine.milliseconds(chunked.choice) < theirs.milliseconds(whole.choice)


def _axes(cost: Cost, index: int) -> tuple[float, int, int, int]:
    return cost.milliseconds, cost.saved_bytes, cost.workspace_bytes, index
