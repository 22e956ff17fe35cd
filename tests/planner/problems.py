"""Random planning problems and an independent simulation of what a plan holds."""

from __future__ import annotations

import random

from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.problem import Options, Problem


def simulated_peak(layers: list[Cost], head_bytes: int, num_in_flight: int) -> int:
    """Runs the forward-backward order step by step over a ledger of named allocations, and watches the total."""
    ledger = {
        f"micro-batch {other}, layer {i}": c.saved_bytes
        for other in range(1, num_in_flight)
        for i, c in enumerate(layers)
    }
    totals = [sum(ledger.values())]

    def watch(transient: int) -> None:
        totals.append(sum(ledger.values()) + transient)

    for i, cost in enumerate(layers):
        ledger[f"saved {i}"] = cost.saved_bytes
        watch(cost.workspace_bytes)
    watch(head_bytes)
    for i in reversed(range(len(layers))):
        watch(layers[i].workspace_bytes)
        del ledger[f"saved {i}"]
    assert len(ledger) == (num_in_flight - 1) * len(layers)
    return max(totals)


def random_problem(chooser: random.Random, alike: bool, max_layers: int = 7) -> Problem:
    """Layers all alike or all different, a budget anywhere between hopeless and generous."""
    num_layers = chooser.randint(1, max_layers)
    options = _random_options(chooser)
    return _with_a_budget(chooser, [options if alike else _random_options(chooser) for _ in range(num_layers)])


def random_stack(chooser: random.Random, max_layers: int = 10) -> Problem:
    """Two or three kinds of layers in any order, as dense, expert, attention-only and MLP-only ones."""
    kinds = [_random_options(chooser) for _ in range(chooser.randint(2, 3))]
    return _with_a_budget(chooser, [chooser.choice(kinds) for _ in range(chooser.randint(2, max_layers))])


def problems(seed: int, num: int) -> list[Problem]:
    """In equal shares layers all alike, all different, and of a few kinds."""
    chooser = random.Random(seed)
    makers = (lambda: random_problem(chooser, True), lambda: random_problem(chooser, False), lambda: random_stack(chooser))
    return [makers[case % 3]() for case in range(num)]


def _with_a_budget(chooser: random.Random, layers: list[Options]) -> Problem:
    head, in_flight = chooser.choice([0, chooser.randint(0, 300)]), chooser.choice([1, 1, 1, 2, 4])
    generous = Problem.of(layers, 0, head, in_flight).peak_bytes((0,) * len(layers))
    return Problem.of(layers, chooser.randint(generous // 3, generous + 50), head, in_flight)


def _random_options(chooser: random.Random) -> Options:
    workspace = chooser.choice([0, 10, 100, 300])
    return tuple(
        Cost(round(chooser.uniform(1, 10), 3), chooser.randint(1, 100), chooser.randint(0, workspace))
        for _ in range(chooser.randint(1, 6))
    )
