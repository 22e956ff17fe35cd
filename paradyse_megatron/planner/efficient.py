"""Which options of a layer are worth looking at."""

from __future__ import annotations

from collections.abc import Sequence

from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.memory import peak_bytes


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


def _axes(cost: Cost) -> tuple[float, int, int]:
    return cost.milliseconds, cost.saved_bytes, cost.workspace_bytes


def _no_worse(cost: Cost, other: Cost) -> bool:
    return all(mine <= theirs for mine, theirs in zip(_axes(cost), _axes(other), strict=True))
