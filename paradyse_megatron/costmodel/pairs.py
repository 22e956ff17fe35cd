"""Costs of a GPT layer that is built as two layers, attention and MLP (`*-` in Megatron's hybrid pattern).

Both do what the halves of the GPT layer do, in the same order. But recomputed in full, each keeps its own input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.planner.cost import Cost, HeadCost
from paradyse_megatron.planner.option import Option


@dataclass(frozen=True)
class PairCosts:
    """A `CostSource` of pairs that follow one option.

    Attributes:
        of_layers: costs of the GPT layer.
    """

    of_layers: CostModel

    @property
    def group_size(self) -> int:
        """See `CostSource`."""
        return self.of_layers.group_size

    @property
    def options(self) -> tuple[str, ...]:
        """See `CostSource`."""
        return self.of_layers.options

    def predict(self, option: str, seq_length: int) -> Cost:
        """Cost of one pair at `seq_length` tokens."""
        cost = self.of_layers.predict(option, seq_length)
        if Option.parse(option).recompute != "full":
            return cost
        return replace(cost, saved_bytes=cost.saved_bytes + self._input_bytes(seq_length))

    @property
    def heads(self) -> tuple[str, ...]:
        """See `CostSource`."""
        return self.of_layers.heads

    def predict_head(self, seq_length: int, head: str = "whole") -> HeadCost:
        """See `CostSource`."""
        return self.of_layers.predict_head(seq_length, head)

    def _input_bytes(self, seq_length: int) -> int:
        """Bytes of one layer's input [s/P, b, h]."""
        shape = self.of_layers.shape
        elements = math.ceil(seq_length / self.group_size) * self.of_layers.micro_batch_size * shape.hidden_size
        return elements * shape.bytes_per_element
