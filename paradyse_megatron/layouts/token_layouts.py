"""The hidden state in contiguous and in zigzag order: two chunks a rank (`layouts.zigzag`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paradyse_megatron.layouts.blocks import Integers
from paradyse_megatron.layouts.section import Axes, Section, Strides
from paradyse_megatron.layouts.zigzag import (
    ZigzagExchange,
    contiguous_chunks,
    to_zigzag_exchange,
    zigzag_chunks,
)


@dataclass(frozen=True)
class Chunks:
    """[2, n]: two chunks of s/(2P) tokens with all that belongs to them.

    Attributes:
        group_size, subgroup_size: P, and the ranks of a place in the zigzag order.
        block_elements: n, elements of a chunk; a block of the wire is a chunk.
        zigzag: in zigzag order, else in contiguous order.
    """

    group_size: int
    subgroup_size: int
    block_elements: int
    zigzag: bool

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the tensor."""
        return ((2, self.block_elements),)

    @property
    def unit(self) -> int:
        """Elements of an atom, a chunk."""
        return self.block_elements

    def order(self, rank: int) -> tuple[int, int]:
        """Which of the two chunks travels first, and which second."""
        return self._leaving(rank).send_order

    def blocks_per_peer(self, rank: int) -> tuple[int, ...]:
        """Chunks that go to each rank."""
        return self._leaving(rank).send_chunks_per_rank

    def sections(self, rank: int, strides: tuple[Strides, ...]) -> tuple[Section, ...]:
        """Both chunks, in the order in which they travel."""
        first, second = self.order(rank)
        chunk = strides[0][0]
        # The strides of the other axes are those of one place.
        extents, wire = Axes(1, 1, 1, 1, 2, 1), Axes(0, 0, 0, 0, self.block_elements, 0)
        local = Axes(0, 0, 0, 0, (second - first) * chunk, 0)
        return (Section(0, self.block_elements, extents, local, wire, local_start=first * chunk).merged(),)

    def is_view(self, rank: int) -> bool:
        """Whether they travel in the order in which they lie."""
        return self.order(rank) == (0, 1)

    def held(self, rank: int) -> list[Integers]:
        """The numbers of the chunks."""
        chunks = (
            zigzag_chunks(rank, self.group_size, self.subgroup_size)
            if self.zigzag
            else contiguous_chunks(rank, self.group_size)
        )
        return [np.array(chunks, np.int64)]

    def _leaving(self, rank: int) -> ZigzagExchange:
        """The exchange in which a rank leaves this order."""
        exchange = to_zigzag_exchange(rank, self.group_size, self.subgroup_size)
        return exchange.inverse() if self.zigzag else exchange
