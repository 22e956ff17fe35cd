"""What the first layers of a problem can do at best, whatever the layers after them do.

Time: give up the peak rule but for the saved bytes, and pay a price for each of those instead of keeping within the
room that is left. Then each layer chooses alone, and the sum, minus what the whole room is worth, is never above the
time of a choice that fits (Lagrangian relaxation; Fisher, "The Lagrangian relaxation method for solving integer
programming problems", 1981, section 2). Of a few prices, the one that gives most counts; the best of all is near that
of the change of options at which the saved bytes begin to fit.

Bytes: the fewest that the layers can save, and the most.
"""

from __future__ import annotations

from typing import NamedTuple

from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.problem import Options, Problem

NUM_PRICES = 6
Prices = tuple[float, ...]
"""Milliseconds for a byte; or for each of them a time."""


class Bounds(NamedTuple):
    """Bounds of one problem. Entry i of the last three is about the layers before layer i.

    Attributes:
        prices: that time is bounded with.
        excess: [kind][option][price] an option's time with its bytes paid for, above the least of its kind.
        priced: their least time with bytes paid for, by price.
        least_saved, most_saved: bytes.
    """

    prices: Prices
    excess: list[list[Prices]]
    priced: list[Prices]
    least_saved: list[int]
    most_saved: list[int]

    def milliseconds(self, layer: int, following_ms: float, room_bytes: int) -> float:
        """The least time of the layers before `layer` within the room, and of those that follow."""
        room = float(room_bytes)
        return following_ms + max(p - price * room for p, price in zip(self.priced[layer], self.prices, strict=True))


def find_bounds(problem: Problem) -> Bounds:
    """Bounds of a problem that some choice fits, and in which every kind's options are sorted, fastest first."""
    prices = _choose_prices(problem)
    paid = [[_paid(cost, prices, problem.num_in_flight) for cost in options] for options in problem.kinds]
    least = [tuple(min(of_price) for of_price in zip(*options, strict=True)) for options in paid]
    excess = [[_minus(each, low) for each in options] for options, low in zip(paid, least, strict=True)]
    priced: list[Prices] = [(0.0,) * NUM_PRICES]
    for kind in problem.layers:
        priced.append(tuple(so_far + more for so_far, more in zip(priced[-1], least[kind], strict=True)))
    return Bounds(prices, excess, priced, *_saved(problem))


def least_milliseconds(problem: Problem) -> float:
    """What no choice that fits is faster than; of a problem without buffers, its options sorted, fastest first."""
    prices = _choose_prices(problem)
    room = float(problem.budget_bytes - problem.head_bytes)
    priced = [0.0] * NUM_PRICES
    for kind, options in enumerate(problem.kinds):
        paid = [_paid(cost, prices, problem.num_in_flight) for cost in options]
        num_layers = float(problem.layers.count(kind))
        priced = [p + num_layers * min(of_price) for p, of_price in zip(priced, zip(*paid, strict=True), strict=True)]
    return max(p - price * room for p, price in zip(priced, prices, strict=True))


def _paid(cost: Cost, prices: Prices, num_in_flight: int) -> Prices:
    num_bytes = float(num_in_flight * cost.saved_bytes)
    return tuple(cost.milliseconds + price * num_bytes for price in prices)


def _minus(more: Prices, less: Prices) -> Prices:
    return tuple(mine - theirs for mine, theirs in zip(more, less, strict=True))


def _saved(problem: Problem) -> tuple[list[int], list[int]]:
    """`least_saved` and `most_saved`: every layer must fit with what the other micro-batches hold at least."""
    total = sum(min(cost.saved_bytes for cost in problem.kinds[kind]) for kind in problem.layers)
    budget = problem.budget_bytes - (problem.num_in_flight - 1) * total
    least, most = [0], [0]
    for kind in problem.layers:
        options = problem.kinds[kind]
        fitting = [c.saved_bytes for c in options if least[-1] + c.saved_bytes + c.workspace_bytes <= budget]
        least.append(least[-1] + min(fitting))
        largest, calmest = max(c.saved_bytes for c in options), min(c.workspace_bytes for c in options)
        most.append(min(most[-1] + largest, budget - calmest))
    return least, most


class _Step(NamedTuple):
    """From one option to the next leaner one, in all layers of a kind."""

    price: float
    num_bytes: int


def _choose_prices(problem: Problem) -> Prices:
    """None, that of the step with which the saved bytes fit, its neighbours', and one further on each side of it."""
    steps = []
    needed = max(problem.head_bytes, min(cost.workspace_bytes for cost in problem.options(len(problem.layers) - 1)))
    for kind, options in enumerate(problem.kinds):
        num_layers = problem.layers.count(kind)
        needed += problem.num_in_flight * options[0].saved_bytes * num_layers
        steps += _hull_steps(options, num_layers, problem.num_in_flight)
    if not steps:
        return (0.0,) * NUM_PRICES
    steps.sort(key=lambda step: step.price)
    num_taken = 0
    while num_taken < len(steps) and needed > problem.budget_bytes:
        needed -= steps[num_taken].num_bytes
        num_taken += 1
    last, leanest = max(num_taken - 1, 0), len(steps) - 1
    chosen = (last // 2, max(last - 1, 0), last, min(last + 1, leanest), (last + len(steps)) // 2)
    return 0.0, *(steps[index].price for index in chosen)


def _hull_steps(options: Options, num_layers: int, num_in_flight: int) -> list[_Step]:
    """Along the lower convex hull of time over saved bytes, from the fastest option to the leanest."""
    steps = []
    at, rest = options[0], options[1:]
    while leaner := [i for i, cost in enumerate(rest) if cost.saved_bytes < at.saved_bytes]:
        price, index = min((_price(at, rest[i], num_in_flight), i) for i in leaner)
        steps.append(_Step(price, num_in_flight * (at.saved_bytes - rest[index].saved_bytes) * num_layers))
        at, rest = rest[index], rest[index + 1 :]
    return steps


def _price(start: Cost, to: Cost, num_in_flight: int) -> float:
    num_bytes = num_in_flight * (start.saved_bytes - to.saved_bytes)
    return (to.milliseconds - start.milliseconds) / float(num_bytes)
