"""The planning problem at one length: for each layer the costs of its options, and a bound on memory."""

from __future__ import annotations

from dataclasses import dataclass

from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.memory import peak_bytes

Choice = tuple[int, ...]
"""For each layer the index of its option."""


@dataclass(frozen=True)
class Problem:
    """What can be chosen, and within which bound.

    Attributes:
        layers: for each layer the costs of its options; at least one option a layer.
        budget_bytes: bound on the peak of activations on one rank.
        head_bytes: what the loss head holds at its peak.
        num_in_flight: micro-batches in flight (`memory.peak_bytes`).
    """

    layers: tuple[tuple[Cost, ...], ...]
    budget_bytes: int
    head_bytes: int = 0
    num_in_flight: int = 1

    def costs(self, choice: Choice) -> list[Cost]:
        """The chosen cost of each layer."""
        return [options[index] for options, index in zip(self.layers, choice, strict=True)]

    def peak_bytes(self, choice: Choice) -> int:
        """Peak of activations under `choice`."""
        return peak_bytes(self.costs(choice), self.head_bytes, self.num_in_flight)

    def milliseconds(self, choice: Choice) -> float:
        """Time of all layers under `choice`, added up first layer first."""
        return sum(cost.milliseconds for cost in self.costs(choice))

    def fits(self, choice: Choice) -> bool:
        """Whether the peak under `choice` is within the budget."""
        return self.peak_bytes(choice) <= self.budget_bytes
