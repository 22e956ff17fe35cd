"""The C++ searches (`csrc/planner`), where they are built; each does what its Python twin does, to the last bit.

They count bytes in 64 bits and raise `ValueError` where a sum could overflow; `NativeStage` asks the twin then.
"""

from __future__ import annotations

import importlib
from typing import Any

from paradyse_megatron.planner.plan import HEADS
from paradyse_megatron.planner.problem import Choice, Problem
from paradyse_megatron.planner.sources import Sources
from paradyse_megatron.planner.stage import TwinStage, Weighed

try:
    _native: Any = importlib.import_module("paradyse_megatron.planner._native")
    missing: str | None = None
    """Why there is no C++ search, as a clause; None where there is."""
except ImportError as error:
    _native = None
    missing = f"{error}"


class NativeStage:
    """A `stage.Stage` in C++; costs that are curves are evaluated there as well."""

    def __init__(self, sources: Sources, budget_bytes: int, num_in_flight: int):
        self._sources = sources
        self._twin = TwinStage(sources, budget_bytes, num_in_flight)
        self._stage = _native.Stage(list(sources.layers), len(sources.models), budget_bytes, num_in_flight)
        curves = sources.curves()
        self._curves = None if curves is None else _native.CurveTable(curves.kinds, curves.heads)

    def best(self, tokens: int) -> Weighed:
        """See `stage.Stage`."""
        try:
            return _weighed(self._stage.best(self._costs(tokens)))
        except _native.Overflow:
            return self._twin.best(tokens)

    def weigh(self, tokens: int, head: str, choice: Choice) -> Weighed:
        """See `stage.Stage`."""
        try:
            return _weighed(self._stage.weigh(self._costs(tokens), HEADS.index(head), choice))
        except _native.Overflow:
            return self._twin.weigh(tokens, head, choice)

    def some_fits(self, tokens: int) -> bool:
        """See `stage.Stage`."""
        try:
            return self._stage.some_fits(self._costs(tokens))
        except _native.Overflow:
            return self._twin.some_fits(tokens)

    def _costs(self, tokens: int) -> Any:
        if self._curves is not None:
            return self._curves.at(tokens)
        kinds, heads = self._sources.at(tokens)
        of_heads = [(head.milliseconds, head.saved_bytes, head.buffer_bytes) for head in heads.values()]
        return _native.Costs([_tuples(options) for options in kinds], of_heads)


def _weighed(found: Any) -> Weighed:
    head, *rest = found
    return Weighed(HEADS[head], *rest)


def _tuples(options: Any) -> list[tuple[float, int, int, int]]:
    return [(cost.milliseconds, cost.saved_bytes, cost.workspace_bytes, cost.buffer_bytes) for cost in options]


def greedy_choice(problem: Problem) -> Choice | None:
    """See `search.greedy_choice`."""
    return _problem(problem).greedy()


def exact_choice(problem: Problem) -> Choice | None:
    """See `exact.exact_choice`."""
    return _problem(problem).exact()


def least_saved_choice(problem: Problem) -> Choice | None:
    """See `feasible.least_saved_choice`."""
    return _problem(problem).least_saved()


def least_memory_choice(problem: Problem) -> Choice:
    """See `feasible.least_memory_choice`."""
    return _problem(problem).least_memory()


def peak_bytes(problem: Problem, choice: Choice) -> int:
    """See `Problem.peak_bytes`."""
    return _problem(problem).peak(choice)


def milliseconds(problem: Problem, choice: Choice) -> float:
    """See `Problem.milliseconds`."""
    return _problem(problem).milliseconds(choice)


def _problem(problem: Problem) -> Any:
    kinds = [_tuples(options) for options in problem.kinds]
    head = problem.head_bytes, problem.num_in_flight, problem.head_buffer_bytes
    return _native.Problem(kinds, problem.layers, problem.budget_bytes, *head)
