"""The gathered weights of one layer for one micro-batch, made ahead of their use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.gathered import GatheredTriple, GatheredWeight, gather_triple
from paradyse_megatron.layers.parameters import weight_and_bias
from paradyse_megatron.planner.option import USUAL_MLP, Option


@dataclass(frozen=True)
class LayerWeights:
    """What `gather_layer` makes; None for a part that does not gather."""

    attention: GatheredTriple | None = None
    mlp: GatheredTriple | None = None

    def start(self) -> None:
        """Send for all of them, in the order of use."""
        for weight in (*(self.attention or ()), *(self.mlp or ())):
            if weight is not None:
                weight.start()

    def matrices(self) -> list[GatheredWeight]:
        """Those that backward needs again, in the order in which it needs them."""
        triples = [triple for triple in (self.mlp, self.attention) if triple is not None]
        return [weight for first, _, second in triples for weight in (second, first)]


GATHER_ON_USE = LayerWeights()
"""Nothing ahead of its use."""


def gather_layer(layer: Any, option: Option, group: Group) -> LayerWeights:
    """The weights that a `TransformerLayer` gathers under `option`. Nothing travels before `start`."""
    attention = mlp = None
    if USUAL_MLP[option.attention] == "gathered" and hasattr(layer.self_attention, "linear_qkv"):
        qkv_weight, qkv_bias = weight_and_bias(layer.self_attention.linear_qkv)
        attention = gather_triple(qkv_weight, qkv_bias, weight_and_bias(layer.self_attention.linear_proj)[0], group)
    if option.mlp == "gathered" and hasattr(layer.mlp, "linear_fc1"):
        fc1_weight, fc1_bias = weight_and_bias(layer.mlp.linear_fc1)
        mlp = gather_triple(fc1_weight, fc1_bias, weight_and_bias(layer.mlp.linear_fc2)[0], group)
    return LayerWeights(attention, mlp)
