"""Ulysses attention (arXiv 2309.14509) with gathered weights.

Each rank projects its own tokens for all heads; one all-to-all turns "own tokens, all heads" into "all tokens, own
heads"; attention runs as on one device; one all-to-all turns its output back; the output projection runs on own tokens.

Sends per rank, forward: the weights, and (2a + 2g') d t b (P-1)/P elements with t = s/P and g' = max(g, P): ranks that
share a key/value head get a copy each.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from paradyse_megatron.comm.collectives import Group, heads_to_tokens, tokens_to_heads
from paradyse_megatron.comm.gathered import gathered_linear
from paradyse_megatron.layouts.heads import HeadDealing
from paradyse_megatron.strategies.attention.geometry import AttentionShards, Geometry, PrepareHeads, keep_heads


def ulysses_attention(
    hidden: Tensor, shards: AttentionShards, geometry: Geometry, group: Group, prepare: PrepareHeads = keep_heads
) -> Tensor:
    """Causal self-attention of [s/P, b, h]; returns [s/P, b, h] without the output bias.

    Needs g to be a multiple of P or P of g.
    """
    copies = HeadDealing(geometry.num_heads, geometry.num_groups, group.size()).num_copies
    qkv_weight, qkv_bias, proj_weight = shards.gathered(group)
    mixed = gathered_linear(hidden, qkv_weight, qkv_bias)
    dealt, mixed = geometry.with_copies(mixed, copies)
    query, key, value = dealt.split(tokens_to_heads(mixed, group))
    query, key = prepare(query, key, slice(0, query.shape[0]))
    context = heads_to_tokens(_causal_attention(query, key, value, geometry.softmax_scale), group)
    return gathered_linear(context, proj_weight)


def _causal_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """[s, b, heads, d] to [s, b, heads * d]."""
    q, k, v = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
    output = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return output.permute(2, 0, 1, 3).flatten(2)
