"""Unified sequence parallelism (arXiv 2405.07719) with gathered weights: Ulysses inside sub-groups, a ring across them.

P ranks are P/u sub-groups of u consecutive ranks. An all-to-all inside the sub-group turns "own tokens, all heads" into
"the sub-group's tokens, own heads"; then the i-th ranks of all sub-groups are a ring in which keys and values travel,
as in `ring`. The sub-groups are the places of the zigzag order, so causal work is the same everywhere; only the hidden
state is brought into that order and back. With u = 1 this is `ring`, with u = P `ulysses`.

Sends per rank, forward, with t = s/P: the weights; (2a + 2g) d t b (u-1)/u in the sub-group, where links are fast when
it lies within a node; 2 g d t b (P/u - 1) to the next sub-group; and the hidden state into zigzag order and back.
Backward: weights and keys and values twice that, exchanges as much.
"""

from __future__ import annotations

from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.conversion import convert
from paradyse_megatron.comm.gathered import gathered_linear
from paradyse_megatron.comm.subgroups import Subgroup
from paradyse_megatron.comm.zigzag import local_zigzag_positions, to_contiguous, to_zigzag
from paradyse_megatron.layouts.conversion import context_to_tokens, qkv_to_heads
from paradyse_megatron.layouts.subgroups import ring_of, subgroup_of, ulysses_degree
from paradyse_megatron.strategies.attention.geometry import (
    AttentionShards,
    Geometry,
    PrepareHeads,
    fused_rotation,
    keep_heads,
)
from paradyse_megatron.strategies.attention.recompute import run_core
from paradyse_megatron.strategies.attention.ring import zigzag_ring
from paradyse_megatron.strategies.attention.ulysses import ulysses_attention


def usp_attention(
    hidden: Tensor,
    shards: AttentionShards,
    geometry: Geometry,
    group: Group,
    prepare: PrepareHeads = keep_heads,
    ranks_per_node: int | None = None,
    recompute_core: bool = False,
) -> Tensor:
    """Causal self-attention of [s/P, b, h]; returns [s/P, b, h] without the output bias. Needs s a multiple of 2P.

    The sub-groups are as large as `layouts.subgroups.ulysses_degree` says for P, g and `ranks_per_node`, which has to
    be the same on all ranks. With `recompute_core` the ring runs again in backward, for all that the core would have
    kept besides what was exchanged.
    """
    degree = ulysses_degree(group.size(), geometry.num_groups, ranks_per_node)
    if degree == group.size():
        return ulysses_attention(hidden, shards, geometry, group, prepare, recompute_core)
    subgroup = Subgroup(group, subgroup_of(group.rank(), degree))
    ring = Subgroup(group, ring_of(group.rank(), group.size(), degree))
    qkv_weight, qkv_bias, proj_weight = shards.gathered(group)
    mixed = gathered_linear(to_zigzag(hidden, group, degree), qkv_weight, qkv_bias)
    sizes = geometry.sizes(hidden, subgroup.size())
    positions = local_zigzag_positions(degree * sizes.num_tokens, ring)
    rotation, prepare_rest = fused_rotation(prepare, positions)

    def core(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key = prepare_rest(query, key, positions)
        return zigzag_ring(query, key, value, ring, geometry.softmax_scale)

    heads = convert(qkv_to_heads(sizes), subgroup, mixed, rotation=rotation)
    attended = run_core(core, heads, recompute_core)
    (context,) = convert(context_to_tokens(sizes), subgroup, attended)
    return to_contiguous(gathered_linear(context, proj_weight), group, degree)
