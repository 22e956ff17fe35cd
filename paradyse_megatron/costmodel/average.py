"""The average layer of a model whose layers are of several kinds: what a static choice of one option takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.cost import Cost, HeadCost
from paradyse_megatron.planner.option import Option


@dataclass(frozen=True)
class AverageLayer:
    """A `CostSource`. Layers that do not know an option's MLP, as those with experts, follow it with Megatron's.

    Attributes:
        of_kinds: costs of all kinds of layers.
    """

    of_kinds: CostModel

    @property
    def shape(self) -> ModelShape:
        """Of the model."""
        return self.of_kinds.shape

    @property
    def group_size(self) -> int:
        """See `CostSource`."""
        return self.of_kinds.group_size

    @property
    def options(self) -> tuple[str, ...]:
        """Those that every layer can follow so."""
        kinds = self.of_kinds.kinds
        known = dict.fromkeys(option for kind in kinds for option in self.of_kinds.options_of(kind))
        return tuple(option for option in known if all(self._followed(option, kind) for kind in kinds))

    def followed(self, option: str) -> tuple[str, ...]:
        """What layers follow in place of `option`, by kind, each once."""
        return tuple(dict.fromkeys(filter(None, (self._followed(option, kind) for kind in self.of_kinds.kinds))))

    def predict(self, option: str, seq_length: int) -> Cost:
        """Time and saved bytes are the mean over all layers, workspace and buffer are the most of any."""
        layers = self.shape.layer_kinds
        of_kind = {
            kind: self.of_kinds.predict(self._followed(option, kind) or option, seq_length, kind)
            for kind in self.of_kinds.kinds
        }
        return Cost(
            sum(of_kind[kind].milliseconds for kind in layers) / len(layers),
            math.ceil(sum(of_kind[kind].saved_bytes for kind in layers) / len(layers)),
            max(cost.workspace_bytes for cost in of_kind.values()),
            max(cost.buffer_bytes for cost in of_kind.values()),
        )

    @property
    def heads(self) -> tuple[str, ...]:
        """See `CostSource`."""
        return self.of_kinds.heads

    def predict_head(self, seq_length: int, head: str = "whole") -> HeadCost:
        """See `CostSource`."""
        return self.of_kinds.predict_head(seq_length, head)

    def _followed(self, option: str, kind: str) -> str | None:
        known = self.of_kinds.costs[kind]
        if option in known:
            return option
        with_megatrons_mlp = str(replace(Option.parse(option), mlp="tp_sp"))
        return with_megatrons_mlp if with_megatrons_mlp in known else None
