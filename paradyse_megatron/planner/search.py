"""Which option for which layer: nearly the fastest total time whose peak of memory fits. A beam that widens.

A pass goes from the last layer to the first and keeps, at each layer, the few most promising ways to run the layers
from there on. Backwards, because of those only a few numbers matter to the layers before: their time, what they need
at their worst moment above what those save, and, with several micro-batches in flight, what they save. One that is no
worse in each beats another, and most permutations of the same options fall away. The most promising are those with the
least bound on the time of all layers (`bounds.py`). One whose bound is no better than a choice already found is
dropped; one that no leaner layers below can make fit as well.

The first pass keeps one way: a greedy descent. Each further pass keeps eight times as many, under a better choice found
before, until nothing had to be left out (then the choice is the best there is), the choice is within half a percent
of the bound, or enough work was done. It starts from the choice that saves the fewest bytes, which exists
whenever any choice fits.

`exact.py` is the oracle beside it; `csrc/planner/beam.hpp` and `search.hpp` do the same in C++, in the same order of
arithmetic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from paradyse_megatron.planner.bounds import Bounds, find_bounds, least_milliseconds
from paradyse_megatron.planner.efficient import efficient_levels
from paradyse_megatron.planner.feasible import least_saved_within
from paradyse_megatron.planner.levels import Level
from paradyse_megatron.planner.problem import Choice, Problem

WIDENING = 8
MOST_WORK = 20_000
"""Steps: one is to put one option before one way to run the layers after it."""
NEAR_ENOUGH = 1.005


class Prospect(NamedTuple):
    """A level with the options worth looking at.

    Attributes:
        level: of the whole problem.
        least_ms: what no choice of it that fits is faster than.
    """

    level: Level
    least_ms: float


def find_prospects(problem: Problem) -> list[Prospect]:
    """All there are; none where some kind of layer fits at no level even alone."""
    return [Prospect(level, least_milliseconds(level.problem)) for level in efficient_levels(problem)]


def greedy_choice(problem: Problem) -> Choice | None:
    """A fast choice that fits, or None exactly when none fits."""
    return fastest_choice(find_prospects(problem))


def fastest_choice(prospects: Sequence[Prospect]) -> Choice | None:
    """The same of a problem whose prospects are known; only levels that promise more are searched."""
    best, best_ms = None, math.inf
    for level, least_ms in sorted(prospects, key=lambda each: each.least_ms):
        cutoff_ms = best_ms / NEAR_ENOUGH
        if best is not None and least_ms >= cutoff_ms:
            break
        choice = _search(level.problem, cutoff_ms)
        if choice is not None and level.problem.milliseconds(choice) < best_ms:
            best, best_ms = level.in_whole(choice), level.problem.milliseconds(choice)
    return best


def _search(problem: Problem, cutoff_ms: float) -> Choice | None:
    """At one level; of no use is what takes `cutoff_ms` or more."""
    fastest: Choice = (0,) * len(problem.layers)
    if problem.fits(fastest):
        return fastest
    start = least_saved_within(problem, problem.budget_bytes)
    return None if start is None else _arranged(problem, _Beam(problem, start, cutoff_ms).widen())


class _Suffix(NamedTuple):
    """The layers from some layer to the last, decided. Sorts by promise.

    Attributes:
        bound_ms: the least time of any whole choice that ends so.
        milliseconds: of these layers.
        need_bytes: at their worst moment, of all micro-batches, above what the layers before them save.
        saved_bytes: by these layers, where several micro-batches are in flight, else 0.
        parent_idx, option_idx: the way to run the layers after the first of these, and that one's option.
    """

    bound_ms: float
    milliseconds: float
    need_bytes: int
    saved_bytes: int
    parent_idx: int
    option_idx: int

    def beats(self, other: _Suffix) -> bool:
        return (
            self.milliseconds <= other.milliseconds
            and self.need_bytes <= other.need_bytes
            and self.saved_bytes <= other.saved_bytes
        )


class _Beam:
    def __init__(self, problem: Problem, start: Choice, cutoff_ms: float):
        self._problem = problem
        self._bounds: Bounds = find_bounds(problem)
        self._levels: list[list[_Suffix]] = [[] for _ in range(len(problem.layers) + 1)]
        self._best = start
        self._best_ms = min(problem.milliseconds(start), cutoff_ms)
        self._work = 0

    def widen(self) -> Choice:
        problem = self._problem
        room = problem.budget_bytes - problem.head_bytes
        enough_ms = NEAR_ENOUGH * self._bounds.milliseconds(len(problem.layers), 0.0, room)
        for width in (WIDENING**power for power in itertools.count()):
            was_cut = self._pass(width)
            if not was_cut or self._best_ms <= enough_ms or self._work * WIDENING > MOST_WORK:
                break
        return self._best

    def _pass(self, width: int) -> bool:
        """Whether more than `width` suffixes could have been kept somewhere."""
        usable = [self._usable(kind) for kind in range(len(self._problem.kinds))]
        self._levels[-1] = [_Suffix(0.0, 0.0, self._problem.head_bytes, 0, -1, -1)]
        was_cut = False
        for layer in reversed(range(len(self._problem.layers))):
            candidates = self._extended(layer, usable[self._problem.layers[layer]])
            self._levels[layer], was_cut_here = _promising(candidates, width)
            was_cut = was_cut or was_cut_here
            if not self._levels[layer]:
                return was_cut
        self._trace_back()
        return was_cut

    def _usable(self, kind: int) -> list[int]:
        """Options with which the bound is below the best time."""
        bounds, room = self._bounds, float(self._problem.budget_bytes - self._problem.head_bytes)
        priced = [p - price * room for p, price in zip(bounds.priced[-1], bounds.prices, strict=True)]
        return [
            option
            for option, excess in enumerate(bounds.excess[kind])
            if max(p + more for p, more in zip(priced, excess, strict=True)) < self._best_ms
        ]

    def _extended(self, layer: int, usable: list[int]) -> list[_Suffix]:
        """The suffixes of the layers after this one, each with each option of this one before it."""
        options, budget, num_in_flight = self._problem.options(layer), self._problem.budget_bytes, self._num_in_flight
        least = num_in_flight * self._bounds.least_saved[layer]
        spare = budget - num_in_flight * self._bounds.most_saved[layer]  # needing less than that is of no use
        longer = []
        self._work += len(self._levels[layer + 1]) * len(usable)
        for parent_idx, suffix in enumerate(self._levels[layer + 1]):
            of_others = (num_in_flight - 1) * suffix.saved_bytes
            for option_idx in usable:
                cost = options[option_idx]
                need = max(suffix.need_bytes, of_others + cost.workspace_bytes) + num_in_flight * cost.saved_bytes
                if least + need > budget:
                    continue
                milliseconds = suffix.milliseconds + cost.milliseconds
                bound = self._bounds.milliseconds(layer, milliseconds, budget - need)
                if bound < self._best_ms:
                    saved = 0 if num_in_flight == 1 else suffix.saved_bytes + cost.saved_bytes
                    longer.append(_Suffix(bound, milliseconds, max(need, spare), saved, parent_idx, option_idx))
        return longer

    @property
    def _num_in_flight(self) -> int:
        return self._problem.num_in_flight

    def _trace_back(self) -> None:
        suffix = min(self._levels[0], key=lambda each: each.milliseconds)
        self._best_ms = suffix.milliseconds
        choice = []
        for level in self._levels[1:]:
            choice.append(suffix.option_idx)
            suffix = level[suffix.parent_idx]
        self._best = tuple(choice)


def _promising(candidates: list[_Suffix], width: int) -> tuple[list[_Suffix], bool]:
    """The `width` most promising that no other beats, and whether there were more."""
    if width == 1:
        return sorted(candidates)[:1], len(candidates) > 1
    kept: list[_Suffix] = []
    for candidate in sorted(candidates):
        if not any(other.beats(candidate) for other in kept):
            if len(kept) == width:
                return kept, True
            kept.append(candidate)
    return kept, False


def _arranged(problem: Problem, choice: Choice) -> Choice:
    """Within each run of layers of one kind, the same options in the order that needs the least memory.

    That is large workspaces first. Exchange argument: of two neighbours, letting the one with the larger workspace go
    first never raises the peak. It also makes runs of options, so plans read well.
    """
    arranged: list[int] = []
    for kind, run in itertools.groupby(range(len(choice)), key=lambda layer: problem.layers[layer]):
        options = problem.kinds[kind]
        arranged += sorted((choice[layer] for layer in run), key=lambda i: (-options[i].workspace_bytes, i))
    return tuple(arranged)
