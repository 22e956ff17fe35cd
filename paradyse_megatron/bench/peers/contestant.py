"""One implementation of one kind of attention, and the forms of tensors that implementations take and return.

Each is handed its own tokens in the form that it takes: making that form is not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from paradyse_megatron.bench.peers.case import Triple
from paradyse_megatron.strategies.attention.geometry import Geometry

RING, ULYSSES = "ring", "ulysses"
FLASH = "torch's flash attention for CPUs"


class Form(Protocol):
    """How an implementation wants query, key and value."""

    def leaves(self, qkv: Triple) -> tuple[Tensor, ...]:
        """Fresh, contiguous tensors of that form, from [t, b, heads, d] each."""
        ...

    def triple(self, leaves: Sequence[Tensor]) -> Triple:
        """The way back, for gradients."""
        ...


@dataclass(frozen=True)
class Axes:
    """Three tensors, or one of output, with the axes of [t, b, heads, d] in another order."""

    order: tuple[int, int, int, int]

    def leaves(self, qkv: Triple) -> tuple[Tensor, ...]:
        """See `Form`."""
        return tuple(map(self.of, qkv))

    def triple(self, leaves: Sequence[Tensor]) -> Triple:
        """See `Form`."""
        query, key, value = map(self.back, leaves)
        return query, key, value

    def of(self, tokens_first: Tensor) -> Tensor:
        """Of [t, b, heads, d]."""
        return tokens_first.permute(self.order).contiguous()

    def back(self, tensor: Tensor) -> Tensor:
        """To [t, b, heads, d]; a view."""
        return tensor.permute(*map(self.order.index, range(4)))


TOKENS_FIRST, HEADS_FIRST, BATCH_FIRST = Axes((0, 1, 2, 3)), Axes((1, 2, 0, 3)), Axes((1, 0, 2, 3))


@dataclass(frozen=True)
class Fused:
    """As Megatron's projection gives them, one tensor [t, b, (a + 2g) d]."""

    geometry: Geometry

    def leaves(self, qkv: Triple) -> tuple[Tensor, ...]:
        """See `Form`."""
        query, key, value = (tensor.unflatten(2, (self.geometry.num_groups, -1)) for tensor in qkv)
        return (torch.cat((query, key, value), dim=3).flatten(2),)

    def triple(self, leaves: Sequence[Tensor]) -> Triple:
        """See `Form`."""
        return self.geometry.split(leaves[0])


@dataclass(frozen=True)
class Contestant:
    """See above.

    Attributes:
        name: of the implementation.
        kind: `RING` or `ULYSSES`; only those of a kind are compared.
        zigzag: whether ranks hold tokens in zigzag order, or else contiguous ones.
        takes: form of its inputs.
        returns: form of its output.
        attend: the implementation; differentiable.
        kernel: what computes attention on a rank.
        is_ours: whether it is a strategy of this package.
    """

    name: str
    kind: str
    zigzag: bool
    takes: Form
    returns: Axes
    attend: Callable[..., Tensor]
    kernel: str = FLASH
    is_ours: bool = False
