"""Random planning problems, small enough for the exact search: what the planner's searches are compared on."""

from __future__ import annotations

import random
from collections.abc import Iterator

from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.problem import Options, Problem

BUFFERS = (40, 90)
"""Sizes that Megatron's buffer can have: of a gathered hidden state, of attention scores."""


def random_problem(chooser: random.Random, alike: bool, max_layers: int = 7) -> Problem:
    """Layers all alike or all different, a budget anywhere between hopeless and generous."""
    num_layers = chooser.randint(1, max_layers)
    options = _random_options(chooser)
    return _with_a_budget(chooser, [options if alike else _random_options(chooser) for _ in range(num_layers)])


def random_stack(chooser: random.Random, max_layers: int = 10) -> Problem:
    """Two or three kinds of layers in any order, such as dense ones, expert ones, attention alone, MLP alone."""
    kinds = [_random_options(chooser) for _ in range(chooser.randint(2, 3))]
    return _with_a_budget(chooser, [chooser.choice(kinds) for _ in range(chooser.randint(2, max_layers))])


def random_problems(seed: int, num: int) -> Iterator[Problem]:
    """In equal shares with layers all alike, all different, and of a few kinds."""
    chooser = random.Random(seed)
    for case in range(num):
        yield random_stack(chooser) if case % 3 == 2 else random_problem(chooser, alike=case % 3 == 0)


def _with_a_budget(chooser: random.Random, layers: list[Options]) -> Problem:
    head, in_flight = chooser.choice([0, chooser.randint(0, 300)]), chooser.choice([1, 1, 1, 2, 4])
    held = head, in_flight, chooser.choice([0, min(head, BUFFERS[0])])
    generous = Problem.of(layers, 0, *held).peak_bytes((0,) * len(layers))
    return Problem.of(layers, chooser.randint(generous // 3, generous + 50), *held)


def _random_options(chooser: random.Random) -> Options:
    workspace = chooser.choice([0, 10, 100, 300])
    buffers = chooser.choice([(0,), (0, *BUFFERS), BUFFERS])
    return tuple(_random_cost(chooser, workspace, chooser.choice(buffers)) for _ in range(chooser.randint(1, 6)))


def _random_cost(chooser: random.Random, most_workspace: int, buffer: int) -> Cost:
    workspace = buffer + chooser.randint(0, most_workspace)
    return Cost(round(chooser.uniform(1, 10), 3), chooser.randint(1, 100), workspace, buffer)
