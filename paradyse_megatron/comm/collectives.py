"""Collectives over one process group; process groups are arguments. Inputs need not be contiguous."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from paradyse_megatron.comm.subgroups import Peers, Subgroup

Group = dist.ProcessGroup


def all_to_all_rows(
    rows: Tensor,
    group: Peers,
    send_rows: list[int] | None = None,
    receive_rows: list[int] | None = None,
    into: Tensor | None = None,
) -> Tensor:
    """Exchange rows of dimension 0 among the ranks of `group`; not differentiable.

    `send_rows[i]` rows go to rank i and `receive_rows[i]` come from it; without them dimension 0 is cut
    evenly. Returns the received rows in ascending order of their source, in `into` if that is given.
    """
    rows = rows.contiguous()
    if isinstance(group, Subgroup):
        even = [rows.shape[0] // group.size()] * group.size()
        return all_to_all_rows(
            rows, group.parent, group.in_parent(send_rows or even), group.in_parent(receive_rows or even), into
        )
    num_received = rows.shape[0] if receive_rows is None else sum(receive_rows)
    received = rows.new_empty((num_received, *rows.shape[1:])) if into is None else into
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
