"""What an attention strategy knows about a layer besides its input: sizes, weights, and what each token undergoes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.gathered import GatheredWeight

PrepareHeads = Callable[[Tensor, Tensor, "slice | Tensor"], tuple[Tensor, Tensor]]
"""(query [n, b, heads, d], key, positions of the n tokens) to both with q/k norms and rotary embedding applied."""


def keep_heads(query: Tensor, key: Tensor, positions: slice | Tensor) -> tuple[Tensor, Tensor]:
    """The `PrepareHeads` of a layer with neither q/k norms nor rotary embedding."""
    return query, key


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


@dataclass(frozen=True)
class AttentionShards:
    """This rank's tensor-parallel shards, as Megatron stores them.

    Attributes:
        qkv_weight: rows of the fused projection, [(a + 2g) d / P, h].
        qkv_bias: [(a + 2g) d / P] or None.
        proj_weight: columns of the output projection, [h, a d / P]; its bias is the caller's to add.
    """

    qkv_weight: Tensor
    qkv_bias: Tensor | None
    proj_weight: Tensor

    def gathered(self, group: Group) -> tuple[GatheredWeight, GatheredWeight | None, GatheredWeight]:
        """The three parameters for one use by one layer."""
        bias = None if self.qkv_bias is None else GatheredWeight(self.qkv_bias, group)
        return GatheredWeight(self.qkv_weight, group), bias, GatheredWeight(self.proj_weight, group, partition_dim=1)
