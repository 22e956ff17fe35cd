"""Layouts between which an exchange converts, and the conversions that strategies need.

A conversion has two ends. At each, *pack* writes what the rank holds into one send buffer, peer after peer, and
*unpack* writes what came into the rank's tensors; between them is one all-to-all. Its inverse has the ends exchanged:
each end's arithmetic (`layouts.section`) is written once and read in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from paradyse_megatron.layouts.blocks import Holding
from paradyse_megatron.layouts.head_layouts import AttentionSizes, HeadsContext, HeadsQkv, TokensContext, TokensQkv
from paradyse_megatron.layouts.section import Section, Strides
from paradyse_megatron.layouts.token_layouts import Chunks


class Layout(Holding, Protocol):
    """One end of a conversion; hashable."""

    def __hash__(self) -> int:
        """Equal layouts have one table of sections."""
        ...

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the tensors that a rank holds."""
        ...

    @property
    def block_elements(self) -> int:
        """Elements of a block of the wire."""
        ...

    def blocks_per_peer(self, rank: int) -> tuple[int, ...]:
        """Blocks that go to each rank, and on the way back come from it."""
        ...

    def sections(self, rank: int, strides: tuple[Strides, ...]) -> tuple[Section, ...]:
        """Where the tensors of `rank`, with these strides, lie in the wire, in the longest pieces."""
        ...

    def is_view(self, rank: int) -> bool:
        """Whether the tensors of `rank` are views of what comes from the wire, so that nothing needs to move."""
        ...


@dataclass(frozen=True)
class Conversion:
    """From the layout `source` to `target`, among the ranks of one exchange."""

    source: Layout
    target: Layout

    @property
    def inverse(self) -> Conversion:
        """The way back; what was copied on the way is added up."""
        return Conversion(self.target, self.source)


def qkv_to_heads(sizes: AttentionSizes) -> Conversion:
    """Own tokens, all heads, fused to all tokens, own heads, as query, key and value."""
    return Conversion(TokensQkv(sizes), HeadsQkv(sizes))


def context_to_tokens(sizes: AttentionSizes) -> Conversion:
    """Attention's output for all tokens, own heads to own tokens, all heads."""
    return Conversion(HeadsContext(sizes), TokensContext(sizes))


def contiguous_to_zigzag(group_size: int, subgroup_size: int, chunk_elements: int) -> Conversion:
    """Two chunks of the sequence in contiguous order to two in zigzag order (`layouts.zigzag`)."""
    orders = (Chunks(group_size, subgroup_size, chunk_elements, zigzag) for zigzag in (False, True))
    return Conversion(*orders)
