"""Ulysses attention (arXiv 2309.14509) with gathered weights.

Each rank projects its own tokens for all heads; one all-to-all turns "own tokens, all heads" into "all tokens, own
heads"; attention runs as on one device; one all-to-all turns its output back; the output projection runs on own tokens.

Sends per rank, forward: the weights, and (2a + 2g') d t b (P-1)/P elements with t = s/P and g' = max(g, P): ranks that
share a key/value head get a copy each.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.conversion import convert
from paradyse_megatron.comm.gathered import gathered_linear
from paradyse_megatron.layouts.conversion import context_to_tokens, qkv_to_heads
from paradyse_megatron.strategies.attention.geometry import (
    AttentionShards,
    Geometry,
    PrepareHeads,
    fused_rotation,
    keep_heads,
)
from paradyse_megatron.strategies.attention.recompute import run_core


def ulysses_attention(
    hidden: Tensor,
    shards: AttentionShards,
    geometry: Geometry,
    group: Group,
    prepare: PrepareHeads = keep_heads,
    recompute_core: bool = False,
) -> Tensor:
    """Causal self-attention of [s/P, b, h]; returns [s/P, b, h] without the output bias.

    Needs g to be a multiple of P or P of g. With `recompute_core` what attention makes of the exchanged q, k, v is
    not kept but computed again in backward; nothing is exchanged again.
    """
    qkv_weight, qkv_bias, proj_weight = shards.gathered(group)
    mixed = gathered_linear(hidden, qkv_weight, qkv_bias)
    context = exchanged_attention(mixed, geometry, group, prepare, recompute_core)
    return gathered_linear(context, proj_weight)


def exchanged_attention(
    mixed_qkv: Tensor,
    geometry: Geometry,
    group: Group,
    prepare: PrepareHeads = keep_heads,
    recompute_core: bool = False,
) -> Tensor:
    """What lies between the projections: own tokens [s/P, b, (a + 2g) d], fused, to their context [s/P, b, a d]."""
    sizes = geometry.sizes(mixed_qkv, group.size())
    positions = slice(0, group.size() * sizes.num_tokens)
    rotation, prepare_rest = fused_rotation(prepare, positions)

    def core(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key = prepare_rest(query, key, positions)
        return causal_attention(query, key, value, geometry.softmax_scale)

    heads = convert(qkv_to_heads(sizes), group, mixed_qkv, rotation=rotation)
    attended = run_core(core, heads, recompute_core)
    (context,) = convert(context_to_tokens(sizes), group, attended)
    return context


def causal_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """[s, b, heads, d] to the same, as it comes out of the library."""
    q, k, v = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
    output = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return output.permute(2, 0, 1, 3)
