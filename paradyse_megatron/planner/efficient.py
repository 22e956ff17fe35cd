"""Which options of a layer are worth looking at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.levels import Level, levels
from paradyse_megatron.planner.memory import peak_bytes
from paradyse_megatron.planner.problem import Problem


def efficient_levels(problem: Problem) -> list[Level]:
    """The levels with only such options, fastest first; without the levels at which some kind has none."""
    return [level for level in map(_efficient, levels(problem)) if all(level.indices)]


def efficient_indices(options: Sequence[Cost], budget_bytes: int, num_in_flight: int = 1) -> tuple[int, ...]:
    """Indices of those options, fastest first.

    Left out are those that break the budget on their own, and those that another is no worse than in time, saved bytes
    and workspace alike; of equal ones the first stays.
    """
    kept: list[int] = []
    for index in sorted(range(len(options)), key=lambda i: (_axes(options[i]), i)):
        cost = options[index]
        alone = peak_bytes([cost], 0, num_in_flight)
        if alone <= budget_bytes and not any(_no_worse(options[other], cost) for other in kept):
            kept.append(index)
    return tuple(kept)


def _efficient(level: Level) -> Level:
    budget, num_in_flight = level.problem.budget_bytes, level.problem.num_in_flight
    kept = [efficient_indices(options, budget, num_in_flight) for options in level.problem.kinds]
    kinds = _picked(level.problem.kinds, kept)
    return Level(replace(level.problem, kinds=kinds), _picked(level.indices, kept))


def _picked[Item](kinds: Sequence[Sequence[Item]], kept: Sequence[Sequence[int]]) -> tuple[tuple[Item, ...], ...]:
    return tuple(tuple(items[index] for index in indices) for items, indices in zip(kinds, kept, strict=True))


def _axes(cost: Cost) -> tuple[float, int, int]:
    return cost.milliseconds, cost.saved_bytes, cost.workspace_bytes


def _no_worse(cost: Cost, other: Cost) -> bool:
    return all(mine <= theirs for mine, theirs in zip(_axes(cost), _axes(other), strict=True))
