"""What one rank sends for one layer, told apart by kind of message and by who takes part; from `volumes.py`."""

from __future__ import annotations

from typing import NamedTuple

from paradyse_megatron.costmodel import volumes
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.volumes import Sent
from paradyse_megatron.layouts.heads import CHUNKS_WANTED
from paradyse_megatron.layouts.subgroups import ulysses_degree


class Message(NamedTuple):
    """What a strategy sends in messages of one kind.

    Attributes:
        kind: one of `work.KINDS`.
        num_peers: consecutive ranks among which they travel.
        sent: how much.
        share_beside_attention: that travels while attention is computed.
    """

    kind: str
    num_peers: int
    sent: Sent
    share_beside_attention: float = 0.0


def attention_messages(
    name: str,
    shape: ModelShape,
    group_size: int,
    local_tokens: int,
    batch: int = 1,
    ranks_per_node: int | None = None,
    rank: int | None = None,
) -> list[Message]:
    """Of an attention strategy, kind by kind; together what `volumes.ATTENTION` says. `rank` as for `ring`."""
    place = shape, group_size, local_tokens, batch
    if group_size == 1:
        return []
    if name == "tp_sp":
        return [Message("gather", group_size, volumes.tp_sp_attention(*place))]
    if name in CHUNKS_WANTED:
        wanted = CHUNKS_WANTED[name]
        share = 1 - 1 / volumes.upipe_chunks(shape, group_size, wanted)
        exchanged = volumes.upipe_exchanges(*place, wanted)
        weights = Message("gather", group_size, volumes.upipe(*place, wanted) - exchanged)
        return [weights, Message("exchange", group_size, exchanged, share)]
    if name == "metp":
        streamed = volumes.metp(*place) - volumes.metp_hops(*place) - volumes.zigzag_exchanges(*place)
        weights = Message("broadcast", group_size, streamed)
    else:
        gathered = volumes.gathered_weights(shape.attention_weights, volumes.qkv_biases(shape), group_size)
        weights = Message("gather", group_size, gathered)
    degree = _subgroup_size(name, shape, group_size, ranks_per_node)
    order = Sent() if name == "ulysses" else volumes.zigzag_exchanges(*place, rank, degree)
    in_ring = volumes.ring_hops(shape, group_size // degree, local_tokens, batch)
    hops = volumes.metp_hops(*place) if name == "metp" else in_ring
    others = [
        Message("exchange", degree, volumes.exchanges(shape, degree, local_tokens, batch)),
        Message("hop", group_size, hops, 1.0),
        Message("exchange", group_size, order),
    ]
    return [weights, *(message for message in others if message.sent != Sent())]


def mlp_messages(name: str, shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> list[Message]:
    """Of an MLP strategy."""
    kind = "broadcast" if name == "streamed" else "gather"
    sent = volumes.MLP[name](shape, group_size, local_tokens, batch)
    return [] if sent == Sent() else [Message(kind, group_size, sent)]


def _subgroup_size(name: str, shape: ModelShape, group_size: int, ranks_per_node: int | None) -> int:
    """Ranks that exchange heads with each other."""
    if name == "usp":
        return ulysses_degree(group_size, shape.num_query_groups, ranks_per_node)
    return group_size if name == "ulysses" else 1
