"""The planning problem at one length: for each layer the costs of its options, and a bound on memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.memory import peak_bytes

Choice = tuple[int, ...]
"""For each layer the index of its option."""
Options = tuple[Cost, ...]
"""The costs of one layer's options."""


@dataclass(frozen=True)
class Problem:
    """What can be chosen, and within which bound.

    Attributes:
        kinds: for each kind of layer the costs of its options; at least one option a kind, no kind without layers.
        layers: for each layer the index of its kind, first layer first.
        budget_bytes: bound on the peak of activations on one rank.
        head_bytes: what the loss head holds at its peak.
        num_in_flight: micro-batches in flight (`memory.peak_bytes`).
        head_buffer_bytes: of the head's bytes, in Megatron's buffer.
    """

    kinds: tuple[Options, ...]
    layers: tuple[int, ...]
    budget_bytes: int
    head_bytes: int = 0
    num_in_flight: int = 1
    head_buffer_bytes: int = 0

    @classmethod
    def of(
        cls,
        layers: Sequence[Options],
        budget_bytes: int,
        head_bytes: int = 0,
        num_in_flight: int = 1,
        head_buffer_bytes: int = 0,
    ) -> Problem:
        """From the options of each layer; layers with equal costs are of one kind."""
        index = {options: kind for kind, options in enumerate(dict.fromkeys(layers))}
        kinds = tuple(index[options] for options in layers)
        return cls(tuple(index), kinds, budget_bytes, head_bytes, num_in_flight, head_buffer_bytes)

    def options(self, layer: int) -> Options:
        """The costs of one layer's options."""
        return self.kinds[self.layers[layer]]

    def costs(self, choice: Choice) -> list[Cost]:
        """The chosen cost of each layer."""
        return [self.kinds[kind][index] for kind, index in zip(self.layers, choice, strict=True)]

    def peak_bytes(self, choice: Choice) -> int:
        """Peak of activations under `choice`."""
        return peak_bytes(self.costs(choice), self.head_bytes, self.num_in_flight, self.head_buffer_bytes)

    def milliseconds(self, choice: Choice) -> float:
        """Time of all layers under `choice`, added up first layer first."""
        milliseconds = 0.0
        for cost in self.costs(choice):
            milliseconds += cost.milliseconds  # `sum` compensates for rounding, which C++ does not
        return milliseconds

    def fits(self, choice: Choice) -> bool:
        """Whether the peak under `choice` is within the budget."""
        return self.peak_bytes(choice) <= self.budget_bytes
