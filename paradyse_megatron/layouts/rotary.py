"""Which token what lies at a place of a tensor is of, whatever the strides; for rotary embedding on the way to a wire.

The twin of `csrc/kernels/rotary.h`, which says what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from paradyse_megatron.layouts.section import Section, Strides


class TokenPlaces(NamedTuple):
    """A place is of token `place % within // stride`; with a stride of 0 tokens do not matter."""

    within: int
    stride: int


UNROTATED = TokenPlaces(0, 0)


@dataclass(frozen=True)
class RotarySections:
    """Where the tensors of a rank lie in the wire, queries and keys apart from values.

    Attributes:
        rotated: pieces are whole heads of one token.
        copied: the others.
        first_token: of the rank's tensors, among the tokens of all peers.
        head_dim: d.
    """

    rotated: tuple[Section, ...]
    copied: tuple[Section, ...]
    first_token: int
    head_dim: int


def token_places(shape: Sequence[int], strides: Strides) -> TokenPlaces:
    """Of a tensor whose first dimension is tokens, and whose strides are nested."""
    if shape[0] == 1:
        return TokenPlaces(1, 1)
    outer = [stride for extent, stride in zip(shape, strides, strict=True) if extent > 1 and stride > strides[0]]
    return TokenPlaces(min(outer, default=shape[0] * strides[0]), strides[0])


def is_nested(shape: Sequence[int], strides: Strides) -> bool:
    """Whether each dimension's step is no less than what the dimensions of smaller steps take, so none overlap."""
    reach = 1
    for stride, extent in sorted((stride, extent) for extent, stride in zip(shape, strides, strict=True) if extent > 1):
        if stride < reach:
            return False
        reach = stride * extent
    return True
