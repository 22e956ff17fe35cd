"""Memory-efficient tensor parallelism: attention head group by head group, with streamed weights.

METP of ParaDySe (arXiv 2511.13198, section on memory-efficient tensor parallelism). Owner r's shards are its head
group's rows of the fused projection and its columns of the output projection. They pass by one owner after the other
(`comm.streamed`); while owner r's are here, its head group is computed by all ranks on their own tokens: projection,
ring attention in zigzag order, and its share of the output projection, which is added up in fp32. So of q, k, v a
rank holds one head group's at a time, [t, b, (a + 2g) d / P], and of the weights two shards besides its own.

Backward computes q, k, v of a head group again from the saved input. Kept besides that input are each group's
attention output and log-sum-exp, [t, b, a d] and [b, a, t] in all; or neither of them, with each group's forward ring
once more in backward. For a 7B layer at 131,072 tokens that is a fifth more time to save a fifth of what is kept, when
full recompute of the layer saves four fifths for little over a quarter, so mostly that is the way to keep less.

Sends per rank, with W elements of weights and biases, t = s/P:
    forward: W (P-1)/P, and K/V 2 g d t b (P-1) as `ring`;
    backward: twice as much (weights again and their gradients; K/V again and their gradients).
The hidden state goes to zigzag order and comes back, as for `ring`. The least memory, never the least volume.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.streamed import GradientsToOwners, ShardStream
from paradyse_megatron.comm.zigzag import local_zigzag_positions, to_contiguous, to_zigzag
from paradyse_megatron.strategies.accumulate import ParameterSums, add_product_, as_rows, new_sum
from paradyse_megatron.strategies.attention.core import Block
from paradyse_megatron.strategies.attention.geometry import (
    AttentionShards,
    Geometry,
    HeadPreparation,
    PrepareHeads,
    keep_heads,
)
from paradyse_megatron.strategies.attention.ring import Ring, ring_backward, ring_forward

_QKV_WEIGHT, _QKV_BIAS, _PROJ_WEIGHT = range(3)


def metp_attention(
    hidden: Tensor,
    shards: AttentionShards,
    geometry: Geometry,
    group: Group,
    prepare: PrepareHeads = keep_heads,
    recompute_core: bool = False,
) -> Tensor:
    """Causal self-attention of [s/P, b, h]; returns [s/P, b, h] without the output bias.

    Needs s a multiple of 2P and g a multiple of P, so that a shard is a run of whole key/value groups. A `prepare`
    with parameters must be a `HeadPreparation`. With `recompute_core` only the input is kept.
    """
    if geometry.num_groups % group.size():
        raise ValueError(
            f"metp needs a run of whole key/value heads on each of the {group.size()} ranks, but the layer "
            f"has {geometry.num_groups}. Use ring, usp or upipe for it."
        )
    if not isinstance(prepare, HeadPreparation):
        prepare = HeadPreparation(prepare)
    positions = local_zigzag_positions(hidden.shape[0], group)
    if isinstance(positions, Tensor):
        positions = positions.to(hidden.device)
    stream = ShardStream((shards.qkv_weight, shards.qkv_bias, shards.proj_weight), group)
    call = _Call(stream, geometry, Ring(group, geometry.softmax_scale), prepare, positions, recompute_core)
    output = _HeadGroups.apply(to_zigzag(hidden, group), *stream.parameters, call, *prepare.parameters)
    return to_contiguous(output, group)


@dataclass(frozen=True)
class _Call:
    """One use by one layer; backward may run when another micro-batch has long been here."""

    stream: ShardStream
    geometry: Geometry
    ring: Ring
    prepare: HeadPreparation
    positions: slice | Tensor
    recompute_core: bool

    def heads(self, mixed: Tensor, prepare: PrepareHeads) -> tuple[Tensor, Tensor]:
        """One owner's projection [t, b, (a + 2g) d / P] to query [b, a/P, t, d] and K/V block [2, b, g/P, t, d]."""
        query, key, value = self.geometry.split(mixed)
        query, key = prepare(query, key, self.positions)
        return query.permute(1, 2, 0, 3), torch.stack((key, value)).permute(0, 2, 3, 1, 4)

    def attend(self, mixed: Tensor) -> tuple[Tensor, Tensor]:
        """The head group's attention output [b, a/P, t, d] and log-sum-exp [b, a/P, t]."""
        query, block = self.heads(mixed, self.prepare.without_gradient)
        return ring_forward(query, block, self.ring)

    def attend_backward(self, mixed: Tensor, grad: Tensor, whole: Block, sums: ParameterSums) -> Tensor:
        """The gradient of `mixed`; those of the preparation's parameters go to `sums`. `grad` is [b, a/P, t, d]."""
        with torch.enable_grad():
            query, block = self.heads(mixed.requires_grad_(), self.prepare)
        grads = ring_backward(grad, query.detach(), block.detach(), whole, self.ring)
        mixed_grad, *of_parameters = torch.autograd.grad((query, block), (mixed, *sums.parameters), grads)
        sums.add(of_parameters)
        return mixed_grad


class _HeadGroups(torch.autograd.Function):
    """Hidden [t, b, h] in zigzag order to [t, b, h], head group after head group."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        qkv_weight: Tensor,
        qkv_bias: Tensor | None,
        proj_weight: Tensor,
        call: _Call,
        *preparation: Tensor,
    ) -> Tensor:
        total = new_sum(as_rows(hidden), proj_weight.shape[0])
        kept: list[Tensor] = []
        for _, (qkv, bias, proj) in call.stream.owners():
            assert qkv is not None and proj is not None
            output, log_sum_exp = call.attend(F.linear(hidden, qkv, bias))
            add_product_(total, _context_rows(output), proj.t())
            if not call.recompute_core:
                kept += (output, log_sum_exp)
        ctx.call = call
        ctx.save_for_backward(hidden, *kept)
        return total.to(hidden.dtype).view(*hidden.shape[:2], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, *kept = ctx.saved_tensors
        call, (needs_hidden, *needs_weights) = ctx.call, ctx.needs_input_grad[:4]
        rows, grad_rows = as_rows(hidden), as_rows(grad)
        hidden_grad = new_sum(rows, hidden.shape[-1]) if needs_hidden else None
        preparation = ParameterSums(call.prepare.parameters)
        gradients = GradientsToOwners(call.stream)
        for owner, (qkv, bias, proj) in call.stream.owners():
            mixed = F.linear(hidden, qkv, bias)
            whole = Block(*(call.attend(mixed) if call.recompute_core else kept[2 * owner : 2 * owner + 2]))
            if needs_weights[_PROJ_WEIGHT]:
                gradients.start(owner, _PROJ_WEIGHT, grad_rows.t() @ _context_rows(whole.output))
            context_grad = (grad @ proj).unflatten(-1, (-1, call.geometry.head_dim)).permute(1, 2, 0, 3)
            mixed_rows = as_rows(call.attend_backward(mixed, context_grad, whole, preparation))
            if needs_weights[_QKV_WEIGHT]:
                gradients.start(owner, _QKV_WEIGHT, mixed_rows.t() @ rows)
            if needs_weights[_QKV_BIAS]:
                gradients.start(owner, _QKV_BIAS, mixed_rows.sum(0))
            if hidden_grad is not None:
                add_product_(hidden_grad, mixed_rows, qkv)
        hidden_grad = None if hidden_grad is None else hidden_grad.to(hidden.dtype).view(hidden.shape)
        return hidden_grad, *gradients.finish(), None, *preparation.totals()


def _context_rows(output: Tensor) -> Tensor:
    """[b, a/P, t, d] to [t * b, a d / P]."""
    return as_rows(output.permute(2, 0, 1, 3).flatten(2))
