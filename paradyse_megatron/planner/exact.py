"""The fastest choice that fits, exactly: the oracle of the greedy search, for small problems.

Layer by layer, keep every partial choice that no other beats in time, saved bytes and peak so far. The number of those
grows with the number of layers, exponentially where layers and options are all different.
"""

from __future__ import annotations

from typing import NamedTuple

from paradyse_megatron.planner.levels import fastest_of_levels
from paradyse_megatron.planner.problem import Choice, Problem


class _Partial(NamedTuple):
    """The layers up to some layer, decided; sorts by time first."""

    milliseconds: float
    saved_bytes: int
    peak_bytes: int
    choice: Choice


def exact_choice(problem: Problem) -> Choice | None:
    """The fastest choice that fits, or None when none fits."""
    return fastest_of_levels(problem, _exact)


def _exact(problem: Problem) -> Choice | None:
    """Of a problem without buffers."""
    partials = [_Partial(0.0, 0, 0, ())]
    for layer in range(len(problem.layers)):
        partials = _efficient([longer for partial in partials for longer in _extended(problem, partial, layer)])
    fitting = [partial for partial in partials if problem.fits(partial.choice)]
    return min(fitting).choice if fitting else None


def _extended(problem: Problem, partial: _Partial, layer: int) -> list[_Partial]:
    """`partial` with each option of the next layer that is not above the budget already."""
    longer = []
    for index, cost in enumerate(problem.options(layer)):
        saved = partial.saved_bytes + cost.saved_bytes
        peak = max(partial.peak_bytes, saved + cost.workspace_bytes)
        if peak + (problem.num_in_flight - 1) * saved <= problem.budget_bytes:
            longer.append(_Partial(partial.milliseconds + cost.milliseconds, saved, peak, (*partial.choice, index)))
    return longer


def _efficient(partials: list[_Partial]) -> list[_Partial]:
    kept: list[_Partial] = []
    for partial in sorted(partials):
        if not any(k.saved_bytes <= partial.saved_bytes and k.peak_bytes <= partial.peak_bytes for k in kept):
            kept.append(partial)
    return kept
