"""What a planner would do over all lengths: where the fastest option changes, and how long a sequence may get.

A static choice, one option for all layers, is a planner that has only that option; so it is held to the same memory
rule and the same loss heads as the plans that follow the length.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from paradyse_megatron.layouts.padding import padding_multiple
from paradyse_megatron.planner.cost import CostSource
from paradyse_megatron.planner.planner import Planner

MakePlanner = Callable[..., Planner]
"""`Planner` with all but its keyword arguments `options` and `hysteresis` given."""


@dataclass(frozen=True)
class BreakEven:
    """Where one option overtakes another, memory aside.

    Attributes:
        seq_length: the shortest sequence, in tokens, for which `after` is the fastest.
        before, after: option texts.
    """

    seq_length: int
    before: str
    after: str


def break_evens(cost_model: CostSource, longest: int, options: Iterable[str] | None = None) -> list[BreakEven]:
    """Every change of the fastest option up to `longest` tokens, shortest first.

    Looks at a grid of lengths, four an octave, and bisects where neighbours differ.
    """
    known = tuple(cost_model.options if options is None else options)
    multiple = padding_multiple(cost_model.group_size)

    def fastest(num_multiples: int) -> str:
        return min(known, key=lambda option: cost_model.predict(option, num_multiples * multiple).milliseconds)

    found = []
    for lower, upper in itertools.pairwise(_geometric(longest // multiple)):
        while fastest(lower) != fastest(upper):
            before = fastest(lower)
            lower = _first(lower, upper, lambda n, before=before: fastest(n) != before)  # type: ignore[misc]
            found.append(BreakEven(lower * multiple, before, fastest(lower)))
    return found


def largest_lengths(make: MakePlanner, options: Mapping[str, Sequence[str]], limit: int) -> Mapping[str, int]:
    """For each static choice, the longest sequence of at most `limit` tokens that fits; 0 where none does.

    Args:
        options: by name of the choice, what layers follow; several options where layers are of several kinds.
    """
    return {name: make(options=list(followed)).largest_length(limit) for name, followed in options.items()}


def _geometric(most: int) -> list[int]:
    """1, then by steps of at most a quarter octave, up to `most`."""
    numbers = [1]
    while numbers[-1] < most:
        numbers.append(min(most, max(numbers[-1] + 1, int(numbers[-1] * 2**0.25))))
    return numbers


def _first(lower: int, upper: int, holds: Callable[[int], bool]) -> int:
    """The smallest number above `lower` where `holds`, which it does at `upper`; by bisection."""
    while upper - lower > 1:
        middle = (lower + upper) // 2
        lower, upper = (lower, middle) if holds(middle) else (middle, upper)
    return upper
