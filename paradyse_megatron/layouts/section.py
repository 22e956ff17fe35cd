"""One end of a conversion as a few affine rectangles: what a kernel needs to know, whatever the length.

The twin of `csrc/kernels/conversion.h`, which says what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

Strides = tuple[int, ...]


class Axes(NamedTuple):
    """A number for each axis, outermost first; what is left out has one place, so its stride does not matter."""

    peer: int
    copy: int
    token: int
    batch: int
    group: int
    head: int


@dataclass(frozen=True)
class Section:
    """Pieces of `width` elements that lie together both in a local tensor and in the buffer that travels.

    Attributes:
        tensor: which of the end's tensors.
        width: elements of a piece.
        extents: pieces along each axis.
        local, wire: strides along each axis, elements.
        local_start, wire_start: where the first piece begins, elements.
    """

    tensor: int
    width: int
    extents: Axes
    local: Axes
    wire: Axes
    local_start: int = 0
    wire_start: int = 0

    @property
    def num_elements(self) -> int:
        """What it moves to the wire."""
        return self.width * int(np.prod(self.extents, dtype=object))

    @property
    def sums_copies(self) -> bool:
        """Whether coming from the wire copies are added up in one place."""
        return self.extents.copy > 1 and self.local.copy == 0

    def merged(self) -> Section:
        """The same with the longest pieces: inner axes along which pieces follow each other on both sides go in."""
        width, extents = self.width, list(self.extents)
        for axis in reversed(range(len(extents))):
            if extents[axis] == 1:
                continue
            if self.local[axis] != width or self.wire[axis] != width:
                break
            width, extents[axis] = width * extents[axis], 1
        return replace(self, width=width, extents=Axes(*extents))


def is_whole(sections: Sequence[Section]) -> bool:
    """Whether the local tensor is, element by element, what travels, so that nothing needs to move."""
    first = sections[0]
    return (
        len(sections) == 1
        and set(first.extents) == {1}
        and (first.tensor, first.local_start, first.wire_start) == (0, 0, 0)
    )


def table(sections: Sequence[Section]) -> bytes:
    """An array of the header's `Section`."""
    rows = [
        (s.tensor, s.width, s.local_start, s.wire_start, *s.extents, *s.local, *s.wire) for s in sections
    ]  # fmt: skip
    return np.array(rows, np.int64).tobytes()
