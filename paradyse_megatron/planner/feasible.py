"""Whether any choice fits, and the one that needs the least memory. Exact, by going through the layers once.

In the peak rule, a layer sees the layers below it only through the sum of their saved bytes, and less is never worse.
So, layer by layer, the option that saves the fewest bytes among those that fit at this moment is right: any feasible
choice could be changed to it and stay feasible.
"""

from __future__ import annotations

from paradyse_megatron.planner.levels import levels
from paradyse_megatron.planner.problem import Choice, Problem


def least_saved_choice(problem: Problem) -> Choice | None:
    """Of the choices that fit, the one whose layers save the fewest bytes; None exactly when none fits."""
    found = [(level, least_saved_within(level.problem, level.problem.budget_bytes)) for level in levels(problem)]
    fitting = [(level, choice) for level, choice in found if choice is not None]
    if not fitting:
        return None
    level, choice = min(fitting, key=lambda each: sum(cost.saved_bytes for cost in each[0].problem.costs(each[1])))
    return level.in_whole(choice)


def least_memory_choice(problem: Problem) -> Choice:
    """The choice with the lowest peak, whatever the budget."""
    choices = [level.in_whole(_least_memory(level.problem)) for level in levels(problem)]
    return min(choices, key=problem.peak_bytes)


def _least_memory(problem: Problem) -> Choice:
    """Of a problem without buffers: bisection over budgets."""
    too_small, enough = -1, problem.peak_bytes((0,) * len(problem.layers))
    while enough - too_small > 1:
        middle = (too_small + enough) // 2
        if least_saved_within(problem, middle) is None:
            too_small = middle
        else:
            enough = middle
    choice = least_saved_within(problem, enough)
    assert choice is not None
    return choice


def least_saved_within(problem: Problem, budget_bytes: int) -> Choice | None:
    """As `least_saved_choice`, of a problem without buffers and for any budget.

    The m - 1 other micro-batches in flight take away (m - 1) times the total saved, which is known only at the end.
    Start from a lower bound of the total: it gives an upper bound of what is left for this micro-batch, that gives a
    better lower bound, and so on. Bounds only grow, over finitely many totals; where they meet, the choice fits.
    """
    least = [min(cost.saved_bytes for cost in options) for options in problem.kinds]
    total = sum(least[kind] for kind in problem.layers)
    while True:
        found = _one_pass(problem, budget_bytes - (problem.num_in_flight - 1) * total)
        if found is None:
            return None
        choice, lower_bound = found
        if lower_bound * problem.num_in_flight + problem.head_bytes > budget_bytes:
            return None
        if lower_bound == total:
            return choice
        total = lower_bound


def _one_pass(problem: Problem, bound_bytes: int) -> tuple[Choice, int] | None:
    """The choice that saves the fewest bytes while every layer stays within the bound, and its total saved bytes."""
    saved_so_far = 0
    choice = []
    for kind in problem.layers:
        room = bound_bytes - saved_so_far
        fitting = [
            (cost.saved_bytes, cost.milliseconds, index)
            for index, cost in enumerate(problem.kinds[kind])
            if cost.saved_bytes + cost.workspace_bytes <= room
        ]
        if not fitting:
            return None
        saved, _, index = min(fitting)
        saved_so_far += saved
        choice.append(index)
    return tuple(choice), saved_so_far
