"""Which loss head goes with which options of the layers.

The chunked head computes the logits twice, so the whole one is preferred: chunked is taken where only it fits the
budget, or where the memory that it leaves to the layers makes them, and all together, faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.feasible import least_memory_choice
from paradyse_megatron.planner.problem import Choice, Problem
from paradyse_megatron.planner.search import fastest_choice, find_prospects


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
    if len(found) == 2:
        return found["chunked"] if _is_better(found["chunked"], found["whole"], variants) else found["whole"]
    if found:
        return next(iter(found.values()))
    leanest = [Draft(head, least_memory_choice(variant.problem)) for head, variant in variants.items()]
    return min(leanest, key=lambda draft: variants[draft.head].problem.peak_bytes(draft.choice))


def _fitting(variants: Mapping[str, Variant]) -> dict[str, Draft]:
    """What fits, by head; where a bound tells that one head cannot beat what was found with the other, only that."""
    prospects = {head: find_prospects(variant.problem) for head, variant in variants.items()}
    least_ms = {head: min((each.least_ms for each in of_head), default=math.inf) for head, of_head in prospects.items()}
    found: dict[str, Draft] = {}
    for head in sorted(variants, key=lambda head: least_ms[head] + variants[head].head_ms):
        if any(_cannot_beat(head, least_ms[head], draft, variants) for draft in found.values()):
            break
        choice = fastest_choice(prospects[head])
        if choice is not None:
            found[head] = Draft(head, choice)
    return found


def _cannot_beat(head: str, least_ms: float, other: Draft, variants: Mapping[str, Variant]) -> bool:
    """Whether the other head's draft stays, whatever this head's turns out to be."""
    layers_ms = variants[other.head].problem.milliseconds(other.choice)
    total_ms = variants[other.head].milliseconds(other.choice)
    least_total_ms = least_ms + variants[head].head_ms
    if head == "whole":
        return layers_ms < least_ms and total_ms < least_total_ms
    return layers_ms <= least_ms or total_ms <= least_total_ms


def _is_better(chunked: Draft, whole: Draft, variants: Mapping[str, Variant]) -> bool:
    mine, theirs = variants["chunked"], variants["whole"]
    faster_layers = mine.problem.milliseconds(chunked.choice) < theirs.problem.milliseconds(whole.choice)
    return faster_layers and mine.milliseconds(chunked.choice) < theirs.milliseconds(whole.choice)


def _axes(cost: Cost, index: int) -> tuple[float, int, int, int]:
    return cost.milliseconds, cost.saved_bytes, cost.workspace_bytes, index
