"""Ulysses attention chunk of heads by chunk of heads, with gathered weights (UPipe, arXiv 2602.21196).

Each chunk takes the same few of every rank's own heads: they are projected on own tokens, exchanged for all tokens,
attended, exchanged back, and their share of the output projection is added up in fp32. So of q, k, v a rank holds
two chunks' at a time, never all. While one chunk is attended, the next one's q, k, v travel; its output travels while
the one after next is projected. Where a rank has fewer key/value heads than chunks, keys and values come with the first
chunk that needs them and stay for the others.

Backward projects and exchanges q, k, v of a chunk again. Kept besides the input are each chunk's attention output
and log-sum-exp, t b a d and t b a numbers in all; or neither of them, with attention's forward once more in backward.
The output of own tokens, which the projection's gradient needs, comes along with the gradients of q, k, v.

Sends per rank, with t = s/P, W elements of weights, g' = max(g, P) key/value heads (copies for ranks that share one):
    forward: W (P-1)/P, and (2a + 2g') d t b (P-1)/P, as `ulysses`;
    backward: 2 W (P-1)/P, and twice the exchanges of forward: q, k, v again and the output's gradient one way, the
    gradients of q, k, v and the output the other.
Two exchanges a chunk, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.exchange import Exchange, there_and_back
from paradyse_megatron.comm.gathered import GatheredWeight
from paradyse_megatron.layouts.heads import HeadChunk, HeadDealing, NumChunks, head_chunks
from paradyse_megatron.strategies.accumulate import ParameterSums, add_product_, as_rows, new_sum
from paradyse_megatron.strategies.attention.core import Block, attend, attend_backward
from paradyse_megatron.strategies.attention.geometry import (
    AttentionShards,
    Geometry,
    HeadPreparation,
    PrepareHeads,
    keep_heads,
)
from paradyse_megatron.strategies.attention.head_blocks import HeadBlocks
from paradyse_megatron.strategies.attention.merge import accumulator_dtype


def upipe_attention(
    hidden: Tensor,
    shards: AttentionShards,
    geometry: Geometry,
    group: Group,
    prepare: PrepareHeads = keep_heads,
    num_chunks: NumChunks = "fewest_bytes",
    recompute_core: bool = False,
) -> Tensor:
    """Causal self-attention of [s/P, b, h]; returns [s/P, b, h] without the output bias.

    Needs g to be a multiple of P or P of g. A `prepare` with parameters must be a `HeadPreparation`. `num_chunks` is
    met as `layouts.heads.num_head_chunks` says. With `recompute_core` only the input is kept.
    """
    if not isinstance(prepare, HeadPreparation):
        prepare = HeadPreparation(prepare)
    dealing = HeadDealing(geometry.num_heads, geometry.num_groups, group.size())
    weights = shards.gathered(group)
    call = _Call(
        head_chunks(dealing, num_chunks),
        HeadBlocks(dealing, geometry.head_dim),
        geometry.softmax_scale,
        group,
        prepare,
        recompute_core,
        *weights,
    )
    entries = (None if weight is None else weight.entry for weight in weights)
    return _UPipe.apply(hidden, *entries, call, *prepare.parameters)


@dataclass(frozen=True)
class _Call:
    """One use by one layer; backward may run when another micro-batch has long been here."""

    chunks: tuple[HeadChunk, ...]
    blocks: HeadBlocks
    softmax_scale: float
    group: Group
    prepare: HeadPreparation
    recompute_core: bool
    qkv_weight: GatheredWeight
    qkv_bias: GatheredWeight | None
    proj_weight: GatheredWeight


class _UPipe(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        qkv_entry: Tensor,
        bias_entry: Tensor | None,
        proj_entry: Tensor,
        call: _Call,
        *preparation: Tensor,
    ) -> Tensor:
        walk = _Forward(hidden, call)
        there_and_back(call.chunks, call.group, walk.begin, walk.middle, walk.end)
        ctx.call = call
        ctx.save_for_backward(hidden, *walk.kept)
        return walk.output.to(hidden.dtype).view(hidden.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, *kept = ctx.saved_tensors
        walk = _Backward(grad, hidden, kept, ctx.call)
        there_and_back(ctx.call.chunks, ctx.call.group, walk.begin, walk.middle, walk.end)
        return walk.gradients(ctx.needs_input_grad)


class _Walk:
    """What forward and backward have in common: the whole weights, and a chunk's q, k, v on their way to attention."""

    def __init__(self, hidden: Tensor, call: _Call):
        for weight in (call.qkv_weight, call.qkv_bias, call.proj_weight):
            if weight is not None:
                weight.start()
        self.call, self.blocks = call, call.blocks
        self.hidden, self.rows = hidden, as_rows(hidden)
        self.qkv = call.qkv_weight.take()
        self.bias = None if call.qkv_bias is None else call.qkv_bias.take()
        self._proj: Tensor | None = None
        self._key_value: Tensor | None = None

    @property
    def proj(self) -> Tensor:
        """The output projection's transpose, [a d, h]; waited for on first need."""
        if self._proj is None:
            self._proj = self.call.proj_weight.take()
        return self._proj

    def projected(self, chunk: HeadChunk, num_more: int = 0) -> Tensor:
        """To be sent: the chunk's queries, its keys and values if it brings them, space for `num_more` heads a rank.

        [P, n, heads, d]; filled part by part, so that little is there twice.
        """
        blocks, num_keys = self.blocks, 2 * chunk.num_groups * chunk.brings_keys
        sizes = (chunk.num_heads, num_keys, num_more)
        sent = self.rows.new_empty(self.call.group.size(), self.rows.shape[0], sum(sizes), blocks.head_dim)
        query, key_value, _ = sent.split(sizes, dim=2)
        blocks.deal_(query, self._project(blocks.query, chunk))
        if chunk.brings_keys:
            blocks.deal_copies_(key_value, self._project(blocks.key_value, chunk))
        return sent

    def _project(self, take: Callable[[Tensor, HeadChunk], Tensor], chunk: HeadChunk) -> Tensor:
        weight = take(self.qkv, chunk).flatten(0, -2)
        return F.linear(self.rows, weight, None if self.bias is None else take(self.bias, chunk).flatten())

    def all_tokens(self, received: Tensor) -> Tensor:
        """[P, n, heads, d] to [s, b, heads, d]."""
        return received.reshape(-1, self.hidden.shape[1], *received.shape[2:])

    def by_owner(self, heads: Tensor) -> Tensor:
        """[s, b, heads, d] to [P, n, heads, d]."""
        return heads.reshape(-1, self.rows.shape[0], *heads.shape[2:])

    def query_key_value(self, chunk: HeadChunk, heads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The first heads of [s, b, ..., d] as query, key and value; the latter two stay for chunks that share them."""
        if chunk.brings_keys:
            key_value = heads[:, :, chunk.num_heads : chunk.num_heads + 2 * chunk.num_groups]
            self._key_value = key_value if chunk.ends_keys else key_value.clone()
        assert self._key_value is not None
        key, value = self._key_value.unflatten(2, (-1, 2)).unbind(3)
        if chunk.ends_keys:
            self._key_value = None
        return heads[:, :, : chunk.num_heads], key, value


class _Forward(_Walk):
    """`output` is the result, in the accumulator's dtype; `kept` is what backward needs of the chunks."""

    def __init__(self, hidden: Tensor, call: _Call):
        super().__init__(hidden, call)
        self.output = new_sum(self.rows, hidden.shape[-1])
        self.kept: list[Tensor] = []

    def begin(self, chunk: HeadChunk) -> Tensor:
        return self.projected(chunk)

    def middle(self, chunk: HeadChunk, coming: Exchange) -> Tensor:
        query, key, value = self.query_key_value(chunk, self.all_tokens(coming.take()))
        query, key = self.call.prepare.without_gradient(query, key, slice(0, query.shape[0]))
        block = attend(_by_head(query), _by_head(key), _by_head(value), self.call.softmax_scale, causal=True)
        if not self.call.recompute_core:
            self.kept += (block.output, block.log_sum_exp)
        return self.by_owner(_by_token(block.output))

    def end(self, chunk: HeadChunk, going: Exchange) -> None:
        weight = self.blocks.context(self.proj, chunk).flatten(0, -2)
        add_product_(self.output, self.blocks.collect(going.take()), weight)


class _Backward(_Walk):
    """`gradients` has the result once all chunks have passed."""

    def __init__(self, grad: Tensor, hidden: Tensor, kept: list[Tensor], call: _Call):
        super().__init__(hidden, call)
        for weight in (call.proj_weight, call.qkv_weight):
            for earlier in weight.wanted_next:
                earlier.start()
        self.grad_rows = as_rows(grad)
        self.outputs = iter([Block(*pair) for pair in zip(kept[::2], kept[1::2], strict=True)])
        self.hidden_grad = new_sum(self.rows, hidden.shape[-1])
        self.qkv_grad = torch.empty_like(self.qkv)
        self.bias_grad = None if self.bias is None else torch.empty_like(self.bias)
        self.proj_grad = torch.empty_like(self.proj)
        self.of_preparation = ParameterSums(call.prepare.parameters)
        self._key_value_grad: Tensor | None = None

    def begin(self, chunk: HeadChunk) -> Tensor:
        sent = self.projected(chunk, chunk.num_heads)
        context_grad = self.grad_rows @ self.blocks.context(self.proj, chunk).flatten(0, -2).t()
        self.blocks.deal_(sent[:, :, -chunk.num_heads :], context_grad)
        return sent

    def middle(self, chunk: HeadChunk, coming: Exchange) -> Tensor:
        return self.by_owner(torch.cat(self._head_gradients(chunk, self.all_tokens(coming.take())), dim=2))

    def _head_gradients(self, chunk: HeadChunk, heads: Tensor) -> list[Tensor]:
        """Of the queries [s, b, heads, d], with the last chunk that shares them of keys and values; the output."""
        query, key, value = (tensor.detach() for tensor in self.query_key_value(chunk, heads))
        with torch.enable_grad():
            prepared = self.call.prepare(query.requires_grad_(), key.requires_grad_(), slice(0, query.shape[0]))
        q, k, v = (_by_head(tensor.detach()) for tensor in (*prepared, value))
        scale = self.call.softmax_scale
        whole = next(self.outputs, None) or attend(q, k, v, scale, causal=True)
        grad = _by_head(heads[:, :, -chunk.num_heads :])
        *prepared_grads, value_grad = attend_backward(grad, q, k, v, whole, scale, causal=True)
        query_grad, key_grad, *of_parameters = torch.autograd.grad(
            prepared, (query, key, *self.of_preparation.parameters), [_by_token(grad) for grad in prepared_grads]
        )
        self.of_preparation.add(of_parameters)
        key_value_grad = torch.stack((key_grad, _by_token(value_grad)), dim=3).flatten(2, 3)
        return [query_grad, *self._summed(chunk, key_value_grad), _by_token(whole.output)]

    def _summed(self, chunk: HeadChunk, key_value_grad: Tensor) -> list[Tensor]:
        """The gradient over the chunks that share these keys and values, with the last of them; before, nothing."""
        dtype = key_value_grad.dtype
        if not chunk.brings_keys:
            assert self._key_value_grad is not None
            key_value_grad = self._key_value_grad + key_value_grad
        if chunk.ends_keys:
            return [key_value_grad.to(dtype)]
        self._key_value_grad = key_value_grad.to(accumulator_dtype(dtype))
        return []

    def end(self, chunk: HeadChunk, going: Exchange) -> None:
        blocks, num_heads, received = self.blocks, chunk.num_heads, going.take()
        context = blocks.collect(received[:, :, -num_heads:])
        _fill(blocks.context(self.proj_grad, chunk), context.t() @ self.grad_rows)
        self._project_back(blocks.query, chunk, blocks.collect(received[:, :, :num_heads]))
        if chunk.ends_keys:
            self._project_back(blocks.key_value, chunk, blocks.sum_copies(received[:, :, num_heads:-num_heads]))

    def _project_back(self, take: Callable[[Tensor, HeadChunk], Tensor], chunk: HeadChunk, grad: Tensor) -> None:
        """From the gradient [n, out] of what `_project` returned to those of its input, weight and bias."""
        add_product_(self.hidden_grad, grad, take(self.qkv, chunk).flatten(0, -2))
        _fill(take(self.qkv_grad, chunk), grad.t() @ self.rows)
        if self.bias_grad is not None:
            _fill(take(self.bias_grad, chunk), grad.sum(0))

    def gradients(self, needed: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
        """In the order of forward's arguments; those of weights are on their way to their owners."""
        weights = (self.call.qkv_weight, self.call.qkv_bias, self.call.proj_weight)
        of_weights = [
            weight.reduction.start(grad) if weight is not None and grad is not None and is_needed else None
            for weight, grad, is_needed in zip(
                weights, (self.qkv_grad, self.bias_grad, self.proj_grad), needed[1:4], strict=True
            )
        ]
        hidden_grad = self.hidden_grad.to(self.hidden.dtype).view(self.hidden.shape)
        return hidden_grad, *of_weights, None, *self.of_preparation.totals()


def _fill(place: Tensor, grad: Tensor) -> None:
    """Write the gradient of a chunk's rows where they lie in that of the whole weight."""
    place.copy_(grad.view(place.shape))


def _by_head(heads: Tensor) -> Tensor:
    """[s, b, heads, d] to [b, heads, s, d]."""
    return heads.permute(1, 2, 0, 3)


def _by_token(heads: Tensor) -> Tensor:
    """The way back."""
    return heads.permute(2, 0, 1, 3)
