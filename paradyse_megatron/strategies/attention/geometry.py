"""What an attention strategy knows about a layer besides its input: sizes, weights, and what each token undergoes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.gathered import GatheredTriple, gather_triple
from paradyse_megatron.comm.rotary import Rotation
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing

PrepareHeads = Callable[[Tensor, Tensor, "slice | Tensor"], tuple[Tensor, Tensor]]
"""(query [n, b, heads, d], key, positions of the n tokens) to both with q/k norms and rotary embedding applied."""


def keep_heads(query: Tensor, key: Tensor, positions: slice | Tensor) -> tuple[Tensor, Tensor]:
    """The `PrepareHeads` of a layer with neither q/k norms nor rotary embedding."""
    return query, key


@dataclass(frozen=True)
class HeadPreparation:
    """A `PrepareHeads` with the parameters that it closes over.

    A strategy that computes queries and keys anew in backward, inside an autograd function of its own, has to know
    them to return their gradients; autograd finds them by itself everywhere else.

    Attributes:
        prepare: the function.
        parameters: weights (and biases) of the q/k norms, replicated on all ranks.
        rotation: of all positions, where that is all that `prepare` does; strategies that exchange queries and keys
            may then rotate them on their way instead.
    """

    prepare: PrepareHeads
    parameters: tuple[Tensor, ...] = ()
    rotation: Rotation | None = None

    def __call__(self, query: Tensor, key: Tensor, positions: slice | Tensor) -> tuple[Tensor, Tensor]:
        return self.prepare(query, key, positions)

    def without_gradient(self, query: Tensor, key: Tensor, positions: slice | Tensor) -> tuple[Tensor, Tensor]:
        """For the forward pass of such a strategy; it notices parameters that were not named."""
        with torch.set_grad_enabled(not self.parameters):
            query, key = self.prepare(query, key, positions)
        if query.requires_grad or key.requires_grad:
            raise ValueError(
                "A preparation of heads uses parameters without naming them, and their gradients would be "
                "lost. Hand the strategy a HeadPreparation with these parameters."
            )
        return query, key


def fused_rotation(prepare: PrepareHeads, positions: slice | Tensor) -> tuple[Rotation | None, PrepareHeads]:
    """What a conversion to heads may do of a preparation, and what is then left to do after it.

    `positions` are those of the tokens that the peers of the conversion hold, in their order.
    """
    if not isinstance(prepare, HeadPreparation) or prepare.rotation is None:
        return None, prepare
    return replace(prepare.rotation, positions=positions), keep_heads


@dataclass(frozen=True)
class Geometry:
    """Sizes of the whole, unsharded attention.

    Attributes:
        num_heads: query heads `a`.
        num_groups: key/value heads `g`; each serves a/g consecutive query heads.
        head_dim: size `d` of a head.
        softmax_scale: factor on the scores.
    """

    num_heads: int
    num_groups: int
    head_dim: int
    softmax_scale: float

    def split(self, mixed_qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Megatron's fused projection into query, key, value.

        [n, b, groups * (a/g + 2) * d], for each group its query heads, then its key, then its value, to
        [n, b, heads, d] and twice [n, b, groups, d]. Works for all groups or for a contiguous run of them.
        """
        heads_per_group = self.num_heads // self.num_groups
        by_group = mixed_qkv.unflatten(-1, (-1, heads_per_group + 2, self.head_dim))
        query, key, value = by_group.split([heads_per_group, 1, 1], dim=3)
        return query.flatten(2, 3), key.flatten(2, 3), value.flatten(2, 3)

    def sizes(self, hidden: Tensor, num_ranks: int) -> AttentionSizes:
        """Of the exchanges of [s/P, b, h] among so many ranks. Raises ValueError if heads cannot be dealt to them."""
        num_tokens, batch = hidden.shape[:2]
        return AttentionSizes(HeadDealing(self.num_heads, self.num_groups, num_ranks), self.head_dim, num_tokens, batch)


@dataclass(frozen=True)
class AttentionShards:
    """This rank's tensor-parallel shards, as Megatron stores them.

    Attributes:
        qkv_weight: rows of the fused projection, [(a + 2g) d / P, h].
        qkv_bias: [(a + 2g) d / P] or None.
        proj_weight: columns of the output projection, [h, a d / P]; its bias is the caller's to add.
        prefetched: the three of them on their way already, for strategies that gather; None to gather on use.
    """

    qkv_weight: Tensor
    qkv_bias: Tensor | None
    proj_weight: Tensor
    prefetched: GatheredTriple | None = None

    def gathered(self, group: Group) -> GatheredTriple:
        """QKV weight and bias and output weight for one use by one layer."""
        return self.prefetched or gather_triple(self.qkv_weight, self.qkv_bias, self.proj_weight, group)
