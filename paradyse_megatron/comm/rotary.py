"""Rotary embedding of queries and keys (arXiv 2104.09864) as a part of a conversion: packing rotates what it moves.

Numbers are those of Megatron's `apply_rotary_pos_emb`: the first r of a head's d are rotated, in halves or in
neighbouring pairs, by angles that each position has for each of them. In fp32 and fp64 they are so to the last bit. In
half precision Megatron's formula without fusion rounds cosines, sines, both products and their sum; here, as in
Transformer Engine's fused kernel, all of that is fp32, and the result is rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paradyse_megatron.comm.launch import UNROTATED, Rotary
from paradyse_megatron.comm.tables import rotary_table_of
from paradyse_megatron.layouts.conversion import Layout
from paradyse_megatron.layouts.head_layouts import HeadsQkv, TokensQkv
from paradyse_megatron.layouts.rotary import TokenPlaces, is_nested
from paradyse_megatron.layouts.section import Strides


@dataclass(frozen=True)
class Rotation:
    """What queries and keys undergo.

    Attributes:
        angles: [s, r] radians of each position, fp32 or fp64.
        positions: of the tokens of all peers, in the order in which peers hold them.
        interleaved: pairs are neighbours; else their partners are r/2 apart.
        is_back: the transpose, which takes gradients back.
    """

    angles: Tensor
    positions: slice | Tensor
    interleaved: bool
    is_back: bool = False

    def inverse(self) -> Rotation:
        """The way back."""
        return replace(self, is_back=not self.is_back)

    def tables(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines [n, r], in the precision in which numbers of `dtype` are rotated.

        A number becomes itself times the cosine, plus its partner times the sine, which has the sign for that.
        """
        angles = self.angles[self.positions]
        sines = angles.sin()
        of_pairs = self._pairs(sines)
        of_pairs[..., 0].neg_()
        if self.is_back:
            sines = self._joined(of_pairs.flip(-1))
        precise = torch.promote_types(dtype, torch.float32)
        return angles.cos().to(precise).contiguous(), sines.to(precise).contiguous()

    def partners(self, numbers: Tensor) -> Tensor:
        """[..., r]: for each its partner."""
        return self._joined(self._pairs(numbers).flip(-1))

    def _pairs(self, numbers: Tensor) -> Tensor:
        """[..., r] as [..., r/2, 2], a view."""
        if self.interleaved:
            return numbers.unflatten(-1, (-1, 2))
        return numbers.unflatten(-1, (2, -1)).transpose(-1, -2)

    def _joined(self, pairs: Tensor) -> Tensor:
        return (pairs if self.interleaved else pairs.transpose(-1, -2)).flatten(-2)


def check(rotation: Rotation, layout: Layout) -> None:
    """Raise a ValueError where a conversion that begins with this layout cannot rotate so."""
    if not isinstance(layout, TokensQkv | HeadsQkv):
        raise ValueError(f"Queries and keys can be rotated on their way, but this conversion moves {layout}.")
    num_rotated, head_dim = rotation.angles.shape[-1], layout.sizes.head_dim
    if rotation.angles.dim() != 2 or num_rotated % 2 or not 0 < num_rotated <= head_dim:
        raise ValueError(
            f"Angles have shape {tuple(rotation.angles.shape)}, but heads of size {head_dim} want [positions, r] with "
            f"an even r of at most {head_dim}."
        )


def rotated(heads: Tensor, rotation: Rotation, tokens: slice) -> Tensor:
    """The reference: [n, b, heads, d], which are these of all peers' tokens, rotated."""
    cosines, sines = (table[tokens, None, None] for table in rotation.tables(heads.dtype))
    turning, rest = heads.tensor_split([cosines.shape[-1]], dim=-1)
    turned = turning * cosines + rotation.partners(turning) * sines
    return torch.cat((turned.to(heads.dtype), rest), dim=-1)


def rotated_end(tensors: Sequence[Tensor], layout: Layout, rank: int, rotation: Rotation) -> tuple[Tensor, ...]:
    """The reference: the tensors of an end with queries and keys rotated."""
    match layout:
        case TokensQkv(sizes):
            tokens = slice(rank * sizes.num_tokens, (rank + 1) * sizes.num_tokens)
            by_group = tensors[0].unflatten(-1, (-1, sizes.heads_per_group + 2, sizes.head_dim))
            turned = rotated(by_group[:, :, :, :-1].flatten(2, 3), rotation, tokens)
            by_group = torch.cat((turned.view_as(by_group[:, :, :, :-1]), by_group[:, :, :, -1:]), dim=3)
            return (by_group.flatten(2),)
        case HeadsQkv():
            query, key, value = tensors
            everything = slice(None)
            return rotated(query, rotation, everything), rotated(key, rotation, everything), value
    raise AssertionError(f"no queries and keys in {layout}")


@dataclass(frozen=True)
class Turning:
    """A rotation as a kernel gets it: `launch.Rotary` with tensors instead of addresses.

    Attributes:
        tables: cosines and sines.
        numbers: as of `launch.Rotary`.
        places: of each section.
    """

    tables: tuple[Tensor, Tensor]
    numbers: tuple[int, int, int, int]
    places: tuple[TokenPlaces, ...]

    def rotary(self) -> Rotary:
        """While the tables live."""
        return rotary_of(*integers_of(self))


def integers_of(how: Turning | None) -> tuple[list[Tensor], list[int]]:
    """What torch operators take for it."""
    return ([], []) if how is None else ([*how.tables], [*how.numbers, *(one for place in how.places for one in place)])


def rotary_of(tables: Sequence[Tensor], integers: Sequence[int]) -> Rotary:
    """What `integers_of` was given, as kernels take it, while the tables live."""
    if not tables:
        return UNROTATED
    cosines, sines = (table.data_ptr() for table in tables)
    head_dim, num_rotated, interleaved, first_token, *places = integers
    pairs = map(TokenPlaces._make, zip(places[::2], places[1::2], strict=True))
    return Rotary((cosines, sines), (head_dim, num_rotated, interleaved, first_token), tuple(pairs))


def turning(
    rotation: Rotation, layout: Layout, rank: int, strides: tuple[Strides, ...], dtype: torch.dtype
) -> tuple[bytes, Turning]:
    """The table of sections of an end whose tensors have these strides, and how they are rotated."""
    assert isinstance(layout, TokensQkv | HeadsQkv)
    table, places, first_token = rotary_table_of(layout, rank, strides)
    return table, turning_of(rotation, layout, first_token, places, dtype)


def turning_of(
    rotation: Rotation, layout: Layout, first_token: int, places: tuple[TokenPlaces, ...], dtype: torch.dtype
) -> Turning:
    """Of sections with these places."""
    assert isinstance(layout, TokensQkv | HeadsQkv)
    numbers = (layout.sizes.head_dim, rotation.angles.shape[-1], int(rotation.interleaved), first_token)
    return Turning(rotation.tables(dtype), numbers, places)


def nested(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where a place in it does not tell its token."""
    return tensor if is_nested(tensor.shape, tensor.stride()) else tensor.contiguous()
