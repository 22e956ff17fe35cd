"""Collectives over one process group, as differentiable functions of tensors.

Process groups are arguments. A group of one rank sends nothing. Every function copes with
non-contiguous inputs and with expanded gradients (`loss = out.sum()` hands those back).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paradyse_megatron.comm.subgroups import Peers, Subgroup

Group = dist.ProcessGroup


def all_to_all_rows(
    rows: Tensor, group: Peers, send_rows: list[int] | None = None, receive_rows: list[int] | None = None
) -> Tensor:
    """Exchange rows of dimension 0 among the ranks of `group`; not differentiable.

    `send_rows[i]` rows go to rank i and `receive_rows[i]` come from it; without them dimension 0 is cut
    evenly. Returns the received rows in ascending order of their source.
    """
    rows = rows.contiguous()
    if isinstance(group, Subgroup):
        even = [rows.shape[0] // group.size()] * group.size()
        return all_to_all_rows(
            rows, group.parent, group.in_parent(send_rows or even), group.in_parent(receive_rows or even)
        )
    num_received = rows.shape[0] if receive_rows is None else sum(receive_rows)
    received = rows.new_empty((num_received, *rows.shape[1:]))
    dist.all_to_all_single(received, rows, receive_rows, send_rows, group=group)
    return received


def start_all_gather(shard: Tensor, group: Group) -> tuple[Tensor, dist.Work]:
    """Begin gathering `shard` along dimension 0; returns the buffer and the work to wait for."""
    shard = shard.contiguous()
    whole = shard.new_empty((group.size() * shard.shape[0], *shard.shape[1:]))
    return whole, _begun(dist.all_gather_into_tensor(whole, shard, group=group, async_op=True))


def start_reduce_scatter(whole: Tensor, group: Group) -> tuple[Tensor, dist.Work]:
    """Begin summing `whole` over the ranks; each keeps its part of dimension 0."""
    whole = whole.contiguous()
    shard = whole.new_empty((whole.shape[0] // group.size(), *whole.shape[1:]))
    return shard, _begun(dist.reduce_scatter_tensor(shard, whole, group=group, async_op=True))


def start_broadcast(tensor: Tensor, owner: int, group: Group) -> dist.Work:
    """Begin to hand the contiguous `tensor` of rank `owner` to all ranks of `group`, into theirs."""
    return _begun(dist.broadcast(tensor, group=group, async_op=True, group_src=owner))


def start_reduce(tensor: Tensor, owner: int, group: Group) -> dist.Work:
    """Begin to sum the contiguous `tensor` of all ranks into that of rank `owner`; on the others it ends undefined."""
    return _begun(dist.reduce(tensor, group=group, async_op=True, group_dst=owner))


def _begun(work: dist.Work | None) -> dist.Work:
    assert work is not None, "this process is not in the group"
    return work


class _TokensToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, group: Peers) -> Tensor:
        ctx.group = group
        return _tokens_to_heads(local, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _heads_to_tokens(grad, ctx.group), None


class _HeadsToTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, group: Peers) -> Tensor:
        ctx.group = group
        return _heads_to_tokens(whole, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _tokens_to_heads(grad, ctx.group), None


def tokens_to_heads(local: Tensor, group: Peers) -> Tensor:
    """[s/P, b, n] (own tokens, all columns) to [s, b, n/P] (all tokens, own columns).

    Columns are cut into P contiguous parts, part r for rank r. One all-to-all, forward and backward.
    """
    return local if group.size() == 1 else _TokensToHeads.apply(local, group)


def heads_to_tokens(whole: Tensor, group: Peers) -> Tensor:
    """The way back: [s, b, n/P] to [s/P, b, n]. One all-to-all, forward and backward."""
    return whole if group.size() == 1 else _HeadsToTokens.apply(whole, group)


def _tokens_to_heads(local: Tensor, group: Peers) -> Tensor:
    num_ranks = group.size()
    num_tokens, batch, width = local.shape
    by_owner = local.reshape(num_tokens, batch, num_ranks, width // num_ranks).permute(2, 0, 1, 3)
    received = all_to_all_rows(by_owner, group)  # [P, s/P, b, n/P], the ranks in token order
    return received.view(num_ranks * num_tokens, batch, width // num_ranks)


def _heads_to_tokens(whole: Tensor, group: Peers) -> Tensor:
    num_ranks = group.size()
    num_tokens, batch, width = whole.shape
    by_owner = whole.reshape(num_ranks, num_tokens // num_ranks, batch, width)
    received = all_to_all_rows(by_owner, group)  # [P, s/P, b, n/P], the ranks in column order
    return received.permute(1, 2, 0, 3).reshape(num_tokens // num_ranks, batch, num_ranks * width)
