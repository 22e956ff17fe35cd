"""Which option for which layer: the fastest total time whose peak of memory fits. Greedy, with two starts.

Down: from the fastest option everywhere, take the change that costs the least time per byte of violation removed, until
the plan fits. The violation is the sum, over the moments of the peak rule (`memory.py`), of the bytes above the budget;
the peak alone would see no progress as long as a second moment is as bad as the first.

Up: from the feasible plan that saves the fewest bytes, which exists whenever any plan fits.

Either way, the rest of the budget is then spent: as long as a change to a faster option fits, the one that gains the
most time per byte saved is taken.

`exact.py` is the oracle beside it. Choices are tuples: nothing that was returned is ever changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.feasible import least_saved_choice
from paradyse_megatron.planner.memory import peak_bytes
from paradyse_megatron.planner.problem import Choice, Problem


def greedy_choice(problem: Problem) -> Choice | None:
    """A fast choice that fits, or None exactly when no choice fits."""
    kept = tuple(efficient_indices(options, problem) for options in problem.layers)
    if not all(kept):
        return None
    reduced = Problem(
        tuple(tuple(options[i] for i in indices) for options, indices in zip(problem.layers, kept, strict=True)),
        problem.budget_bytes,
        problem.head_bytes,
        problem.num_in_flight,
    )
    choice = _greedy(reduced)
    return None if choice is None else tuple(indices[i] for indices, i in zip(kept, choice, strict=True))


def efficient_indices(options: Sequence[Cost], problem: Problem) -> tuple[int, ...]:
    """Options of one layer worth looking at, fastest first.

    Left out are those that break the budget on their own, and those that another is no worse than in time, saved bytes
    and workspace alike; of equal ones the first stays.
    """
    kept: list[int] = []
    for index in sorted(range(len(options)), key=lambda i: (_axes(options[i]), i)):
        cost = options[index]
        alone = peak_bytes([cost], 0, problem.num_in_flight)
        if alone <= problem.budget_bytes and not any(_no_worse(options[other], cost) for other in kept):
            kept.append(index)
    return tuple(kept)


def _axes(cost: Cost) -> tuple[float, int, int]:
    return cost.milliseconds, cost.saved_bytes, cost.workspace_bytes


def _no_worse(cost: Cost, other: Cost) -> bool:
    return all(mine <= theirs for mine, theirs in zip(_axes(cost), _axes(other), strict=True))


def _greedy(problem: Problem) -> Choice | None:
    fastest: Choice = (0,) * len(problem.layers)
    if problem.fits(fastest):
        return fastest
    moves = _Moves(problem)
    starts = [_down(problem, moves, fastest), least_saved_choice(problem)]
    finished = [_up(problem, moves, _arranged(problem, start)) for start in starts if start is not None]
    return min(finished, key=problem.milliseconds, default=None)


class _Moves:
    """Every change of one layer to one option, and what each would do: entry n of an array is about change n.

    Attributes:
        layer_idx, option_idx: which layer to which option.
        milliseconds, saved: of that option.
    """

    def __init__(self, problem: Problem):
        pairs = [(layer, option) for layer, options in enumerate(problem.layers) for option in range(len(options))]
        costs = [problem.layers[layer][option] for layer, option in pairs]
        self._problem = problem
        self._dtype = _integer_dtype(problem)
        self.layer_idx = np.array([layer for layer, _ in pairs])
        self.option_idx = np.array([option for _, option in pairs])
        self.milliseconds = np.array([cost.milliseconds for cost in costs])
        self.saved = np.array([cost.saved_bytes for cost in costs], self._dtype)
        self._workspace = np.array([cost.workspace_bytes for cost in costs], self._dtype)
        moments = np.arange(len(problem.layers) + 1)[:, None]
        self._at = moments == self.layer_idx
        self._after = moments > self.layer_idx

    def changes(self, choice: Choice) -> tuple[NDArray, NDArray]:
        """Milliseconds and saved bytes that each change adds (negative: takes away)."""
        costs = self._problem.costs(choice)
        milliseconds = np.array([cost.milliseconds for cost in costs])
        saved = np.array([cost.saved_bytes for cost in costs], self._dtype)
        return self.milliseconds - milliseconds[self.layer_idx], self.saved - saved[self.layer_idx]

    def held_bytes(self, choice: Choice) -> NDArray:
        """[L + 1, number of changes]: bytes held at each moment of the peak rule, head last, after each change."""
        costs = self._problem.costs(choice)
        saved = np.array([cost.saved_bytes for cost in costs], self._dtype)
        workspace = np.array([cost.workspace_bytes for cost in costs], self._dtype)
        so_far = np.cumsum(saved, dtype=self._dtype)
        now = np.append(so_far + workspace, so_far[-1] + self._problem.head_bytes)
        more_saved = self.saved - saved[self.layer_idx]
        more_workspace = self._workspace - workspace[self.layer_idx]
        of_others = (self._problem.num_in_flight - 1) * (so_far[-1] + more_saved)
        return now[:, None] + self._after * more_saved + self._at * (more_saved + more_workspace) + of_others

    def applied(self, choice: Choice, change: int) -> Choice:
        """`choice` after the change."""
        layer = int(self.layer_idx[change])
        return (*choice[:layer], int(self.option_idx[change]), *choice[layer + 1 :])


def _integer_dtype(problem: Problem) -> np.dtype[Any]:
    """64-bit where no sum over moments can overflow, else Python's own integers: slow, but right."""
    most = sum(max(c.saved_bytes + c.workspace_bytes for c in options) for options in problem.layers)
    most = (most + problem.head_bytes + problem.budget_bytes) * problem.num_in_flight * (len(problem.layers) + 1)
    return np.dtype(np.int64 if most < 2**62 else object)


def _down(problem: Problem, moves: _Moves, choice: Choice) -> Choice | None:
    """Give up the least time per byte of violation until the choice fits; None when stuck."""
    while not problem.fits(choice):
        above = np.maximum(moves.held_bytes(choice) - problem.budget_bytes, 0).sum(axis=0)
        stays = np.flatnonzero((moves.layer_idx == 0) & (moves.option_idx == choice[0]))[0]  # a change that is none
        removed = (above[stays] - above).astype(float)
        if removed.max() <= 0:
            return None
        more_ms, _ = moves.changes(choice)
        price = np.divide(more_ms, removed, out=np.full(len(removed), np.inf), where=removed > 0)
        choice = moves.applied(choice, int(price.argmin()))
    return choice


def _up(problem: Problem, moves: _Moves, choice: Choice) -> Choice:
    """Spend what is left of the budget: while a faster option fits, gain the most time per byte saved."""
    while True:
        more_ms, more_saved = moves.changes(choice)
        allowed = (more_ms < 0) & (moves.held_bytes(choice).max(axis=0) <= problem.budget_bytes)
        if not allowed.any():
            return _arranged(problem, choice)
        gain = np.where(allowed, -more_ms / np.maximum(more_saved, 1).astype(float), -np.inf)
        choice = moves.applied(choice, int(gain.argmax()))


def _arranged(problem: Problem, choice: Choice) -> Choice:
    """Where all layers are alike, the same options in the order that needs the least memory: large workspaces first.

    Exchange argument: of two neighbours, letting the one with the larger workspace go first never raises the peak. It
    also makes runs, so plans read well.
    """
    if len(set(problem.layers)) > 1:
        return choice
    options = problem.layers[0]
    return tuple(sorted(choice, key=lambda i: (-options[i].workspace_bytes, i)))
