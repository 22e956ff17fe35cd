"""Layout conversions as differentiable functions: pack, one all-to-all, unpack; backward is the inverse conversion.

Or, by the executor `symm`, stores straight into the tensors of peers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paradyse_megatron.comm import executors, rotary, symm
from paradyse_megatron.comm.collectives import all_to_all_rows
from paradyse_megatron.comm.rotary import Rotation
from paradyse_megatron.comm.subgroups import Peers
from paradyse_megatron.layouts.conversion import Conversion


def convert(
    conversion: Conversion, peers: Peers, *tensors: Tensor, rotation: Rotation | None = None
) -> tuple[Tensor, ...]:
    """The tensors of this rank in the source layout to those in the target layout; differentiable.

    One all-to-all among `peers`, or one exchange by stores, forward and backward; none when there is one peer.

    With a `rotation`, packing rotates queries and keys, and on the way back their gradients the other way round: before
    those of a key that several ranks share are added up, as autograd would.

    Raises:
        ValueError: the conversion moves no queries and keys, or the rotation does not suit them.
    """
    if rotation is not None:
        rotary.check(rotation, conversion.source)
    return _Convert.apply(conversion, peers, rotation, *tensors)


class _Convert(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, conversion: Conversion, peers: Peers, rotation: Rotation | None, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.conversion, ctx.peers, ctx.rotation = conversion, peers, rotation
        return _convert(conversion, peers, tensors, rotation)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        back = None if ctx.rotation is None else ctx.rotation.inverse()
        return None, None, None, *_convert(ctx.conversion.inverse, ctx.peers, grads, back)


def _convert(
    conversion: Conversion, peers: Peers, tensors: tuple[Tensor, ...], rotation: Rotation | None
) -> tuple[Tensor, ...]:
    executor, rank = executors.current(), peers.rank()
    if executor is symm:
        converted = symm.converted(conversion, peers, tensors, rotation)
        if converted is not None:
            return converted
    return executor.unpack(_exchanged(executor, conversion, peers, tensors, rotation), conversion.target, rank)


def _exchanged(
    executor: executors.Executor,
    conversion: Conversion,
    peers: Peers,
    tensors: tuple[Tensor, ...],
    rotation: Rotation | None,
) -> Tensor:
    """What comes; what is sent is let go of before it is unpacked."""
    rank = peers.rank()
    sent = executor.pack(tensors, conversion.source, rank, rotation)
    if peers.size() == 1:
        return sent
    to_peers, from_peers = conversion.source.blocks_per_peer(rank), conversion.target.blocks_per_peer(rank)
    received = executor.empty((sum(from_peers), conversion.target.block_elements), sent)
    if set(to_peers) == set(from_peers) == {1}:
        return all_to_all_rows(sent, peers, into=received)
    return all_to_all_rows(sent, peers, list(to_peers), list(from_peers), into=received)
