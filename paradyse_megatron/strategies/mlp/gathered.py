"""The MLP on own tokens with gathered weights: nothing but weights travels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.gathered import GatheredTriple, gather_triple, gathered_linear


@dataclass(frozen=True)
class MlpShards:
    """This rank's tensor-parallel shards, as Megatron stores them.

    Attributes:
        fc1_weight: [f/P, h]; for a gated MLP [2 f/P, h], the gate's rows before the linear part's *of this rank*.
        fc1_bias: one number a row of `fc1_weight`, or None.
        fc2_weight: [h, f/P]; its bias is the caller's to add.
        prefetched: the three of them on their way already, for strategies that gather; None to gather on use.
    """

    fc1_weight: Tensor
    fc1_bias: Tensor | None
    fc2_weight: Tensor
    prefetched: GatheredTriple | None = None

    def gathered(self, group: Group) -> GatheredTriple:
        """fc1 weight and bias and fc2 weight for one use by one layer."""
        return self.prefetched or gather_triple(self.fc1_weight, self.fc1_bias, self.fc2_weight, group)


def gathered_mlp(hidden: Tensor, shards: MlpShards, group: Group, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """[s/P, b, h] to [s/P, b, h] without the output bias.

    `activation` maps a rank's fc1 output [..., f/P] (gated: [..., 2 f/P] as [gate, linear]) to [..., f/P]. The gathered
    fc1 output is [gate_0; linear_0; gate_1; ...], so the activation is applied owner by owner and what comes out is
    in the order of fc2's columns.
    """
    fc1_weight, fc1_bias, fc2_weight = shards.gathered(group)
    intermediate = gathered_linear(hidden, fc1_weight, fc1_bias)
    by_owner = intermediate.unflatten(-1, (group.size(), -1))
    return gathered_linear(activation(by_owner).flatten(-2), fc2_weight)
