"""A conversion as an integer plan: which contiguous blocks each rank copies where. For tests and for counting bytes.

It follows from nothing but what each rank holds in the two layouts, by element. Whoever needs an element gets it from
the one rank that has it in the layout by tokens; on the way back every holder of a copy returns it, and the copies are
added. The wire carries what goes from one rank to another in the order of the layout by tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class Holding(Protocol):
    """What a layout says of the atoms (equal runs of elements) that a rank holds."""

    @property
    def unit(self) -> int:
        """Elements of an atom."""
        ...

    def held(self, rank: int) -> list[Integers]:
        """For each tensor of `rank` the atoms, as global numbers, in the order in which they lie in memory."""
        ...


@dataclass(frozen=True)
class Blocks:
    """Runs that are contiguous where they come from and where they go.

    Attributes:
        start, stop: of each, offsets in elements; the tensors of a rank count as lying one after the other.
        length: elements of each.
    """

    start: Integers
    stop: Integers
    length: Integers

    def inverse(self) -> Blocks:
        """The way back."""
        return Blocks(self.stop, self.start, self.length)

    @property
    def num_elements(self) -> int:
        """What they move."""
        return int(self.length.sum())

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.start.tolist(), self.stop.tolist(), self.length.tolist(), strict=True)


@dataclass(frozen=True)
class BlockPlan:
    """All blocks of a conversion, by ranks.

    Attributes:
        direct: `direct[r][p]`: what goes from rank r to rank p, from tensor to tensor.
        packs: `packs[r]`: from the tensors of rank r to its send buffer.
        unpacks: `unpacks[p]`: from the receive buffer of rank p to its tensors.
        sent: `sent[r][p]`: elements from rank r to rank p.
    """

    direct: list[list[Blocks]]
    packs: list[Blocks]
    unpacks: list[Blocks]
    sent: Integers

    def inverse(self) -> BlockPlan:
        """The way back, where blocks that end at the same place are added up."""
        num_ranks = len(self.packs)
        return BlockPlan(
            [[self.direct[r][p].inverse() for r in range(num_ranks)] for p in range(num_ranks)],
            [blocks.inverse() for blocks in self.unpacks],
            [blocks.inverse() for blocks in self.packs],
            self.sent.T,
        )


def block_plan(by_tokens: Holding, other: Holding, num_ranks: int) -> BlockPlan:
    """From the layout in which every element is on one rank only, to any other."""
    unit, sources = by_tokens.unit, [np.concatenate(by_tokens.held(rank)) for rank in range(num_ranks)]
    ends = [np.cumsum([tensor.size for tensor in other.held(rank)]) for rank in range(num_ranks)]
    atoms = [
        [_copies(sources[r], np.concatenate(other.held(p)), ends[p]) for p in range(num_ranks)]
        for r in range(num_ranks)
    ]
    sent = np.array([[len(pair.start) for pair in row] for row in atoms]).reshape(num_ranks, num_ranks)
    packs, unpacks = [], []
    for rank in range(num_ranks):
        wire = np.arange(sent[rank].sum())
        packs.append(_scaled(_merged(np.concatenate([pair.start for pair in atoms[rank]]), wire, wire * 0), unit))
        wire, mine = np.arange(sent[:, rank].sum()), np.concatenate([row[rank].stop for row in atoms])
        unpacks.append(_scaled(_merged(wire, mine, np.searchsorted(ends[rank], mine, side="right")), unit))
    direct = [
        [_scaled(_merged(pair.start, pair.stop, pair.length), unit) for pair in row] for row in atoms
    ]  # fmt: skip
    return BlockPlan(direct, packs, unpacks, sent * unit)


def _copies(source: Integers, target: Integers, ends: Integers) -> Blocks:
    """Atom by atom what `source` has for `target`, in the source's order; `length` is the target's tensor."""
    order = np.argsort(source)
    found = order[np.minimum(np.searchsorted(source, target, sorter=order), source.size - 1)]
    stop = np.flatnonzero(source[found] == target)
    start = found[stop]
    wire = np.argsort(start, kind="stable")
    start, stop = start[wire], stop[wire]
    return Blocks(start, stop, np.searchsorted(ends, stop, side="right"))


def _merged(start: Integers, stop: Integers, tensor: Integers) -> Blocks:
    """Neighbours joined into the longest runs that stay in one tensor."""
    if not start.size:
        return Blocks(start, stop, start)
    breaks = (np.diff(start) != 1) | (np.diff(stop) != 1) | (np.diff(tensor) != 0)
    first = np.flatnonzero(np.concatenate(([True], breaks)))
    return Blocks(start[first], stop[first], np.diff(np.concatenate((first, [start.size]))))


def _scaled(blocks: Blocks, unit: int) -> Blocks:
    return replace(blocks, start=blocks.start * unit, stop=blocks.stop * unit, length=blocks.length * unit)
