"""Tables of sections for the kernels, host's and GPU's: made once for each layout, rank and strides."""

from __future__ import annotations

import functools

from torch import Tensor

from paradyse_megatron.layouts.conversion import Layout
from paradyse_megatron.layouts.head_layouts import HeadsQkv, TokensQkv
from paradyse_megatron.layouts.rotary import UNROTATED, TokenPlaces, token_places
from paradyse_megatron.layouts.section import Axes, Section, Strides, is_whole, table

_MAX_DIMS = len(Axes._fields) + 1


@functools.lru_cache(maxsize=256)
def table_of(layout: Layout, rank: int, strides: tuple[Strides, ...]) -> bytes | None:
    """The sections of one end with these tensors; None if nothing has to move."""
    sections = layout.sections(rank, strides)
    return None if is_whole(sections) else table(sections)


@functools.lru_cache(maxsize=256)
def rotary_table_of(
    layout: TokensQkv | HeadsQkv, rank: int, strides: tuple[Strides, ...]
) -> tuple[bytes, tuple[TokenPlaces, ...], int]:
    """The sections of an end that is rotated on its way to the wire, how each tells tokens, and the first token."""
    found = layout.rotary_sections(rank, strides)
    places = [token_places(layout.shapes[one.tensor], strides[one.tensor]) for one in found.rotated]
    return table((*found.rotated, *found.copied)), (*places, *[UNROTATED] * len(found.copied)), found.first_token


@functools.lru_cache(maxsize=256)
def table_of_copy(shape: tuple[int, ...], target: Strides, source: Strides) -> bytes:
    """The one section of a copy, `source` being the local side and `target` the wire."""
    outer = len(shape) - 1
    ones, zeros = (1,) * (_MAX_DIMS - 1 - outer), (0,) * (_MAX_DIMS - 1 - outer)
    extents, local, wire = (Axes(*numbers) for numbers in (
        (*ones, *shape[:outer]), (*zeros, *source[:outer]), (*zeros, *target[:outer])
    ))  # fmt: skip
    return table([Section(0, shape[-1], extents, local, wire).merged()])


def is_section(target: Tensor, source: Tensor) -> bool:
    """Whether a copy is one section: elements lie together, and it has no more dimensions than a section has axes."""
    return (
        target.dtype == source.dtype
        and 0 < target.dim() <= _MAX_DIMS
        and target.numel() > 0
        and target.stride(-1) == source.stride(-1) == 1
    )
