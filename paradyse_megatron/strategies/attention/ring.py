"""Ring attention (arXiv 2310.01889) in zigzag order, with gathered weights.

The sequence is cut into 2P chunks and rank i computes chunks i and 2P-1-i, so that causal work is the same on every
rank. Keys and values travel once round the ring, one hop in flight while a block is computed; partial results merge
by log-sum-exp in fp32. Only the hidden state is brought into zigzag order and back, as it is narrower than q, k, v.

With rank r holding the block of rank `source`, its queries see
    source = r:  the block itself, causally;
    source < r:  the block's first chunk, by all queries (the second chunk lies after them);
    source > r:  the whole block, by the queries of the second chunk only.
The last two are the same amount of work.

Backward, keys and values travel again, and each block's gradient travels after it in fp32, starting at the first rank
behind the owner, which adds its own part at the end: 2 g d t b (P-1) elements for each, twice the forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.gathered import gathered_linear
from paradyse_megatron.comm.ring import Hop
from paradyse_megatron.comm.subgroups import Peers
from paradyse_megatron.comm.zigzag import local_zigzag_positions, to_contiguous, to_zigzag
from paradyse_megatron.strategies.attention.core import Block, attend, attend_backward
from paradyse_megatron.strategies.attention.geometry import AttentionShards, Geometry, PrepareHeads, keep_heads
from paradyse_megatron.strategies.attention.merge import accumulator_dtype, merge_block_

_BLOCK_TAG, _GRADIENT_TAG = 1, 2


def ring_attention(
    hidden: Tensor, shards: AttentionShards, geometry: Geometry, group: Group, prepare: PrepareHeads = keep_heads
) -> Tensor:
    """Causal self-attention of [s/P, b, h]; returns [s/P, b, h] without the output bias. Needs s a multiple of 2P."""
    qkv_weight, qkv_bias, proj_weight = shards.gathered(group)
    mixed = gathered_linear(to_zigzag(hidden, group), qkv_weight, qkv_bias)
    query, key, value = geometry.split(mixed)
    query, key = prepare(query, key, local_zigzag_positions(hidden.shape[0], group))
    context = zigzag_ring(query, key, value, group, geometry.softmax_scale)
    return to_contiguous(gathered_linear(context.flatten(2), proj_weight), group)


def zigzag_ring(query: Tensor, key: Tensor, value: Tensor, group: Peers, softmax_scale: float) -> Tensor:
    """Causal attention over all ranks' tokens, each rank holding its two zigzag chunks.

    Shapes: query [t, b, a, d], key and value [t, b, g, d], to [t, b, a, d].
    """
    block = torch.stack((key, value)).permute(0, 2, 3, 1, 4)
    query = query.contiguous()  # it is kept, and a view would keep all of the projection
    output = _ZigzagRing.apply(query.permute(1, 2, 0, 3), block, Ring(group, softmax_scale))
    return output.permute(2, 0, 1, 3)


@dataclass(frozen=True)
class Ring:
    """Who sees what at each step of one rank's walk round the ring."""

    group: Peers
    softmax_scale: float

    @property
    def num_steps(self) -> int:
        return self.group.size()

    def visible(self, step: int, num_tokens: int) -> tuple[slice, slice]:
        """Query rows and keys of the block that arrived after `step` hops that see each other."""
        everything, half = slice(0, num_tokens), num_tokens // 2
        if step == 0:
            return everything, everything
        comes_before = step <= self.group.rank()
        return (everything, slice(0, half)) if comes_before else (slice(half, num_tokens), everything)


class _ZigzagRing(torch.autograd.Function):
    """Query [b, a, t, d] and block [2, b, g, t, d] (keys, values) to [b, a, t, d]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, block: Tensor, ring: Ring) -> Tensor:
        output, log_sum_exp = ring_forward(query, block, ring)
        ctx.ring = ring
        ctx.save_for_backward(query, block, output, log_sum_exp)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        query, block, output, log_sum_exp = ctx.saved_tensors
        return *ring_backward(grad, query, block, Block(output, log_sum_exp), ctx.ring), None


def ring_forward(query: Tensor, block: Tensor, ring: Ring) -> tuple[Tensor, Tensor]:
    """The merged output in the query's dtype, and the log-sum-exp."""
    own = None
    for step in range(ring.num_steps):
        hop = Hop(block, ring.group, _BLOCK_TAG) if step + 1 < ring.num_steps else None
        rows, keys = ring.visible(step, query.shape[2])
        key, value = block[:, :, :, keys].unbind()
        part = attend(query[:, :, rows], key, value, ring.softmax_scale, causal=step == 0)
        if own is None:
            own = part.output.to(accumulator_dtype(query.dtype)), part.log_sum_exp.contiguous()
        else:
            merge_block_(own[0][:, :, rows], own[1][:, :, rows], part.output, part.log_sum_exp)
        block = hop.wait() if hop else block
    assert own is not None
    return own[0].to(query.dtype), own[1]


def ring_backward(grad: Tensor, query: Tensor, block: Tensor, whole: Block, ring: Ring) -> tuple[Tensor, Tensor]:
    """Gradients of the query and of this rank's own block."""
    hop = Hop(block, ring.group, _BLOCK_TAG) if ring.num_steps > 1 else None
    query_grad, own_block_grad = _block_gradients(grad, query, block, whole, ring, step=0)
    travelling: Hop | None = None
    for step in range(1, ring.num_steps):
        assert hop is not None
        block = hop.wait()
        hop = Hop(block, ring.group, _BLOCK_TAG) if step + 1 < ring.num_steps else None
        part_query_grad, block_grad = _block_gradients(grad, query, block, whole, ring, step)
        query_grad += part_query_grad
        if travelling is not None:
            block_grad += travelling.wait()
        travelling = Hop(block_grad, ring.group, _GRADIENT_TAG)
    if travelling is not None:
        own_block_grad = own_block_grad + travelling.wait()
    return query_grad.to(query.dtype), own_block_grad.to(block.dtype)


def _block_gradients(
    grad: Tensor, query: Tensor, block: Tensor, whole: Block, ring: Ring, step: int
) -> tuple[Tensor, Tensor]:
    """Full-size gradients of the query and of the block of `step`, in the accumulator's dtype, zero where unseen."""
    dtype = accumulator_dtype(query.dtype)
    rows, keys = ring.visible(step, query.shape[2])
    seen = Block(whole.output[:, :, rows], whole.log_sum_exp[:, :, rows])
    key, value = block[:, :, :, keys].unbind()
    query_part, key_part, value_part = attend_backward(
        grad[:, :, rows], query[:, :, rows], key, value, seen, ring.softmax_scale, causal=step == 0
    )
    query_grad = torch.zeros(query.shape, dtype=dtype, device=query.device)
    block_grad = torch.zeros(block.shape, dtype=dtype, device=block.device)
    query_grad[:, :, rows] = query_part.to(dtype)
    block_grad[0, :, :, keys] = key_part.to(dtype)
    block_grad[1, :, :, keys] = value_part.to(dtype)
    return query_grad, block_grad
