"""The MLP on own tokens with gathered weights: nothing but weights travels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.gathered import GatheredWeight, gathered_linear


@dataclass(frozen=True)
class MlpShards:
    """This rank's tensor-parallel shards, as Megatron stores them.

    Attributes:
        fc1_weight: [f/P, h]; for a gated MLP [2 f/P, h], the gate's rows before the linear part's *of this rank*.
        fc1_bias: one number a row of `fc1_weight`, or None.
        fc2_weight: [h, f/P]; its bias is the caller's to add.
    """

    fc1_weight: Tensor
    fc1_bias: Tensor | None
    fc2_weight: Tensor


def gathered_mlp(hidden: Tensor, shards: MlpShards, group: Group, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """[s/P, b, h] to [s/P, b, h] without the output bias.

    `activation` maps a rank's fc1 output [..., f/P] (gated: [..., 2 f/P] as [gate, linear]) to [..., f/P]. The gathered
    fc1 output is [gate_0; linear_0; gate_1; ...], so the activation is applied owner by owner and what comes out is
    in the order of fc2's columns.
    """
    bias = None if shards.fc1_bias is None else GatheredWeight(shards.fc1_bias, group)
    fc1_weight = GatheredWeight(shards.fc1_weight, group)
    fc2_weight = GatheredWeight(shards.fc2_weight, group, partition_dim=1)
    intermediate = gathered_linear(hidden, fc1_weight, bias)
    by_owner = intermediate.unflatten(-1, (group.size(), -1))
    return gathered_linear(activation(by_owner).flatten(-2), fc2_weight)
