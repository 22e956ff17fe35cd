"""A conversion without a wire: where each tensor of a rank goes in the memory of its peers.

Derived from the sections of both ends (`layouts.section`), not written again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from paradyse_megatron.layouts.conversion import Conversion, Layout
from paradyse_megatron.layouts.nested import Axis, Nested, chained, of_section, window
from paradyse_megatron.layouts.section import Axes, Section, Strides

_ALIGNED_ELEMENTS = 16
"""Tensors in a landing begin at multiples of this, so of 16 bytes whatever the type."""


_ONE_PLACE = Axis(1, 0, 0)


@dataclass(frozen=True)
class Landing:
    """What a rank gets in its window: the tensors of the target layout, one after the other.

    Or, where copies are to be added up, the wire as it is, so that they can be, in their order.

    Attributes:
        is_wire: the latter.
        shapes: of the tensors, or of the wire.
        starts: of each, elements.
        num_elements: of all, gaps between them included.
    """

    is_wire: bool
    shapes: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    num_elements: int

    def strides(self) -> tuple[Strides, ...]:
        """Of each tensor, which has no gaps."""
        return tuple(
            tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape))) for shape in self.shapes
        )  # fmt: skip


@dataclass(frozen=True)
class PeerSection:
    """A section whose `wire` is the landing of a peer.

    Attributes:
        section: its axes `peer` and `copy` count peers, copies fastest.
        first_peer: the peer of their first place.
    """

    section: Section
    first_peer: int


def landing_of(layout: Layout) -> Landing:
    """The same for every rank, as all of them hold as much."""
    strides = Landing(False, layout.shapes, (), 0).strides()
    is_wire = any(section.sums_copies for section in layout.sections(0, strides))
    shapes = ((sum(layout.blocks_per_peer(0)), layout.block_elements),) if is_wire else layout.shapes
    rounded = [-(-math.prod(shape) // _ALIGNED_ELEMENTS) * _ALIGNED_ELEMENTS for shape in shapes]
    *starts, num_elements = accumulate(rounded, initial=0)
    return Landing(is_wire, shapes, tuple(starts), num_elements)


def peer_sections(conversion: Conversion, rank: int, strides: tuple[Strides, ...]) -> tuple[PeerSection, ...]:
    """Where the tensors of `rank`, with these strides, lie in the landings of all ranks."""
    return landed_sections(conversion, rank, conversion.source.sections(rank, strides))


def landed_sections(conversion: Conversion, rank: int, sections: Sequence[Section]) -> tuple[PeerSection, ...]:
    """The same for these sections of the source alone."""
    source, landing = conversion.source, landing_of(conversion.target)
    rows = source.blocks_per_peer(rank)
    mine = [(section.tensor, of_section(section)) for section in sections]
    found: dict[tuple[int, ...], list[tuple[int, Section]]] = defaultdict(list)
    first = 0
    for peer, num_blocks in enumerate(rows):
        block = window(first, num_blocks * source.block_elements)
        first += block.span if num_blocks else 0
        landed = list(_landed(conversion.target, landing, rank, peer))
        for which, (tensor, run) in enumerate(mine):
            sent = chained(run, block) if num_blocks else None
            for place, other in enumerate(landed) if sent else ():
                assert sent is not None
                pair = chained(_by_wire(sent), other)
                if pair is not None:
                    found[which, place].append((peer, _section(tensor, pair)))
    return tuple(fused for sections in found.values() for fused in _fused(sections))


def _landed(target: Layout, landing: Landing, rank: int, peer: int) -> Iterator[Nested]:
    """From places in the blocks that `rank` sends to `peer` to places in the landing of the latter."""
    blocks, size = target.blocks_per_peer(peer), target.block_elements
    incoming = window(sum(blocks[:rank]) * size, blocks[rank] * size)
    if landing.is_wire:
        yield replace(incoming, key=0, value=incoming.key)
        return
    for section in target.sections(peer, landing.strides()):
        run = of_section(section)
        received = chained(run, incoming)
        if received is not None:
            start = landing.starts[section.tensor]
            yield replace(_by_wire(received), value=received.key + start)


def _by_wire(run: Nested) -> Nested:
    """With places in the block, which are the values, as keys, as which their axes are nested."""
    axes = tuple(axis._replace(key=axis.value, value=axis.key) for axis in run.axes)
    return Nested(run.value, run.key, axes)


def _section(tensor: int, run: Nested) -> Section:
    """Of one peer, from the tensor, which is the keys of `run`, to its landing, the values."""
    together = bool(run.axes) and run.axes[-1][1:] == (1, 1)
    width, axes = (run.axes[-1].extent, run.axes[:-1]) if together else (1, run.axes)
    assert len(axes) <= 4, f"more axes than a section has: {run}"
    padded = [_ONE_PLACE] * (len(Axes._fields) - len(axes)) + list(axes)
    extents, local, wire = (Axes(*numbers) for numbers in zip(*padded, strict=True))
    return Section(tensor, width, extents, local, wire, run.key, run.value).merged()


def _fused(sections: Sequence[tuple[int, Section]]) -> Iterator[PeerSection]:
    """Sections of ascending peers as few that run over peers, evenly spaced, and over groups of them."""
    copies = list(_runs([(peer, 1, section) for peer, section in sections], "copy"))
    for peer, _, section in _runs(copies, "peer"):
        yield PeerSection(section, peer)


def _runs(sections: list[tuple[int, int, Section]], axis: str) -> Iterator[tuple[int, int, Section]]:
    """(first peer, number of peers, section): those that follow each other by equal steps as one, along the axis."""
    index = 0
    while index < len(sections):
        peer, number, first = sections[index]
        extent, step = 1, (0, 0)
        while index + extent < len(sections):
            next_peer, next_number, section = sections[index + extent]
            before = sections[index + extent - 1][2]
            found = (section.local_start - before.local_start, section.wire_start - before.wire_start)
            alike = replace(section, local_start=first.local_start, wire_start=first.wire_start) == first
            follows = (next_peer, next_number) == (peer + extent * number, number)
            if not (alike and follows and (extent == 1 or found == step)):
                break
            extent, step = extent + 1, found
        along = [
            numbers._replace(**{axis: value})
            for numbers, value in ((first.extents, extent), (first.local, step[0]), (first.wire, step[1]))
        ]
        yield peer, extent * number, replace(first, extents=along[0], local=along[1], wire=along[2])
        index += extent
