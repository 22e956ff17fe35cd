"""The `torch` executor: packs and unpacks by views, permutes and concatenations. The reference, on any device.

Every layout is written out on its own, so that it does not share the sections with the executors it is compared to.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paradyse_megatron.comm.rotary import Rotation, rotated_end
from paradyse_megatron.layouts.conversion import Layout
from paradyse_megatron.layouts.head_layouts import AttentionSizes, HeadsContext, HeadsQkv, TokensContext, TokensQkv
from paradyse_megatron.layouts.token_layouts import Chunks


def pack(tensors: Sequence[Tensor], layout: Layout, rank: int, rotation: Rotation | None = None) -> Tensor:
    """What the rank holds, as blocks [n, elements] in the order of the ranks that they go to.

    With a rotation, queries and keys of `TokensQkv` or `HeadsQkv` are rotated by the positions of their tokens.
    """
    if rotation is not None:
        tensors = rotated_end(tensors, layout, rank, rotation)
    match layout:
        case TokensQkv(sizes):
            wire = _to_columns(_with_copies(tensors[0], sizes), sizes)
        case HeadsQkv(sizes):
            query, key, value = tensors
            by_group = query.unflatten(2, (sizes.dealing.own_groups, sizes.dealing.heads_per_own_group))
            wire = torch.cat((by_group, key.unsqueeze(3), value.unsqueeze(3)), dim=3)
        case TokensContext(sizes):
            wire = _to_columns(tensors[0], sizes)
        case HeadsContext():
            wire = tensors[0]
        case Chunks():
            wire = _in_order(tensors[0], layout.order(rank))
        case _:
            raise AssertionError(f"an unknown layout: {layout}")
    return wire.reshape(sum(layout.blocks_per_peer(rank)), layout.block_elements).contiguous()


def unpack(wire: Tensor, layout: Layout, rank: int) -> tuple[Tensor, ...]:
    """What came, blocks in the order of the ranks they come from, as the tensors of the rank."""
    match layout:
        case TokensQkv(sizes):
            return (_with_summed_copies(_from_columns(wire, sizes), sizes),)
        case HeadsQkv(sizes):
            in_group = sizes.dealing.heads_per_own_group
            rows = wire.view(-1, sizes.batch, sizes.dealing.own_groups, in_group + 2, sizes.head_dim)
            return tuple(part.flatten(2, 3) for part in rows.split([in_group, 1, 1], dim=3))
        case TokensContext(sizes):
            return (_from_columns(wire, sizes),)
        case HeadsContext():
            return (wire.view(layout.shapes[0]),)
        case Chunks():
            return (_in_order(wire, layout.order(rank)),)
        case _:
            raise AssertionError(f"an unknown layout: {layout}")


def _to_columns(local: Tensor, sizes: AttentionSizes) -> Tensor:
    """[t, b, n] to [P, t, b, n/P]."""
    return local.reshape(sizes.num_tokens, sizes.batch, sizes.dealing.num_ranks, -1).permute(2, 0, 1, 3)


def _from_columns(wire: Tensor, sizes: AttentionSizes) -> Tensor:
    """[P, t, b, n/P] to [t, b, n]."""
    by_rank = wire.view(sizes.dealing.num_ranks, sizes.num_tokens, sizes.batch, -1)
    return by_rank.permute(1, 2, 0, 3).reshape(sizes.num_tokens, sizes.batch, -1)


def _with_copies(mixed: Tensor, sizes: AttentionSizes) -> Tensor:
    """Each rank's query heads followed by its copy of their key and value."""
    copies = sizes.dealing.num_copies
    if copies == 1:
        return mixed
    by_group = mixed.unflatten(-1, (sizes.dealing.num_groups, -1, sizes.head_dim))
    own_queries = by_group[:, :, :, :-2].unflatten(3, (copies, -1))
    key_value = by_group[:, :, :, -2:].unsqueeze(3).expand(-1, -1, -1, copies, -1, -1)
    return torch.cat((own_queries, key_value), dim=4).flatten(2)


def _with_summed_copies(dealt: Tensor, sizes: AttentionSizes) -> Tensor:
    """The gradient of what `_with_copies` was given: copies added in their order, rounded once."""
    copies = sizes.dealing.num_copies
    if copies == 1:
        return dealt
    by_copy = dealt.unflatten(-1, (sizes.dealing.num_groups, copies, -1, sizes.head_dim))
    first, *others = by_copy[:, :, :, :, -2:].unbind(3)
    total = first.to(torch.promote_types(first.dtype, torch.float32))
    for other in others:
        total = total + other
    return torch.cat((by_copy[:, :, :, :, :-2].flatten(3, 4), total.to(first.dtype)), dim=3).flatten(2)


def _in_order(chunks: Tensor, order: tuple[int, int]) -> Tensor:
    """[2, n] in the given order."""
    return chunks if order == (0, 1) else chunks.flip(0)


def empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A fresh tensor that is about to be filled."""
    return like.new_empty(shape)


def copy_(target: Tensor, source: Tensor) -> None:
    """Write `source` into `target`."""
    target.copy_(source)
