"""Contiguous to zigzag token order and back: one uneven all-to-all, whose integers `layouts.zigzag` works out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paradyse_megatron.comm.collectives import Group, all_to_all_rows
from paradyse_megatron.comm.subgroups import Peers
from paradyse_megatron.layouts.zigzag import ZigzagExchange, to_zigzag_exchange, zigzag_positions


def to_zigzag(local: Tensor, group: Group, subgroup_size: int = 1) -> Tensor:
    """[s/P, ...] in contiguous order to [s/P, ...] in zigzag order (over sub-groups); differentiable."""
    if subgroup_size == group.size():
        return local
    return _Reorder.apply(local, group, to_zigzag_exchange(group.rank(), group.size(), subgroup_size))


def to_contiguous(local: Tensor, group: Group, subgroup_size: int = 1) -> Tensor:
    """The inverse of `to_zigzag`; differentiable."""
    if subgroup_size == group.size():
        return local
    return _Reorder.apply(local, group, to_zigzag_exchange(group.rank(), group.size(), subgroup_size).inverse())


def local_zigzag_positions(num_tokens: int, group: Peers) -> slice | Tensor:
    """Global positions of this rank's `num_tokens` = s/P tokens in zigzag order."""
    if group.size() == 1:
        return slice(0, num_tokens)
    return torch.from_numpy(zigzag_positions(group.rank(), group.size(), num_tokens * group.size()))


class _Reorder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, group: Group, exchange: ZigzagExchange) -> Tensor:
        ctx.group, ctx.exchange = group, exchange
        return _exchange_chunks(local, group, exchange)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _exchange_chunks(grad, ctx.group, ctx.exchange.inverse()), None, None


def _exchange_chunks(local: Tensor, group: Group, exchange: ZigzagExchange) -> Tensor:
    chunk_length = local.shape[0] // 2
    sent = _take_chunks(local, exchange.send_order)
    received = all_to_all_rows(
        sent,
        group,
        send_rows=[chunk_length * count for count in exchange.send_chunks_per_rank],
        receive_rows=[chunk_length * count for count in exchange.recv_chunks_per_rank],
    )
    return _take_chunks(received, exchange.receive_order)


def _take_chunks(rows: Tensor, order: tuple[int, int]) -> Tensor:
    """The two halves of dimension 0 in the given order."""
    return rows if order == (0, 1) else torch.cat([rows.chunk(2)[place] for place in order])
