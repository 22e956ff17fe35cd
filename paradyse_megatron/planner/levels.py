"""The problem without Megatron's buffer, once for each size that it can have.

What Megatron's sequence-parallel layers and its loss head gather into is one buffer of a process: made on first use, as
large as the largest use, and kept. So it is there beside every layer of a plan, once any of them or the head uses it
(`memory.peak_bytes`). The searches need not know: for each size that the buffer can have, they choose among the options
that make do with it, within what it leaves of the budget. A choice that fits the whole problem is one of the level of
its buffer's size, with the same peak; and a choice of a level needs no more in the whole problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.problem import Choice, Problem


class Level(NamedTuple):
    """One size of the buffer.

    Attributes:
        problem: in which no cost has a buffer.
        indices: for each kind, where its options stand in the whole problem.
    """

    problem: Problem
    indices: tuple[tuple[int, ...], ...]

    def in_whole(self, choice: Choice) -> Choice:
        """The choice by the whole problem's indices."""
        return tuple(self.indices[kind][index] for kind, index in zip(self.problem.layers, choice, strict=True))


def levels(problem: Problem) -> list[Level]:
    """The largest buffer first, with which every option can be had."""
    least = problem.head_buffer_bytes
    buffers = {least, *(max(least, cost.buffer_bytes) for options in problem.kinds for cost in options)}
    found = (_level(problem, buffer) for buffer in sorted(buffers, reverse=True))
    return [level for level in found if all(level.indices)]


def fastest_of_levels(problem: Problem, search: Callable[[Problem], Choice | None]) -> Choice | None:
    """Of what `search` finds at each level, the fastest; of equally fast ones that with the largest buffer."""
    found = [(level, search(level.problem)) for level in levels(problem)]
    choices = [level.in_whole(choice) for level, choice in found if choice is not None]
    return min(choices, key=problem.milliseconds, default=None)


def _level(problem: Problem, buffer_bytes: int) -> Level:
    indices = tuple(
        tuple(index for index, cost in enumerate(options) if cost.buffer_bytes <= buffer_bytes)
        for options in problem.kinds
    )
    kinds = tuple(
        tuple(_without_buffer(options[index]) for index in kept)
        for options, kept in zip(problem.kinds, indices, strict=True)
    )
    beside = replace(
        problem,
        kinds=kinds,
        budget_bytes=problem.budget_bytes - buffer_bytes,
        head_bytes=problem.head_bytes - problem.head_buffer_bytes,
        head_buffer_bytes=0,
    )
    return Level(beside, indices)


def _without_buffer(cost: Cost) -> Cost:
    return Cost(cost.milliseconds, cost.saved_bytes, cost.workspace_bytes - cost.buffer_bytes)
