"""What a launch of a GPU kernel gets: `csrc/kernels/conversion.cu`'s `Move` as an array of integers, and its grid."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from paradyse_megatron.layouts.section import Axes

THREADS = 128
MAX_SECTIONS = 4
SUMMED = ("float32", "float64", "bfloat16", "float16")
"""Types whose copies can be added up; there is a kernel for each."""

KERNELS = ("copy_sections", *(f"sum_sections_{number}" for number in SUMMED))

_AXES = len(Axes._fields)
_INTEGERS = 4 + 3 * _AXES
_WIDTH, _EXTENTS, _COPIES, _COPY_STRIDE = 1, slice(4, 4 + _AXES), 4 + 1, 4 + _AXES + 1
_BYTES_OF_THREAD = 4 * 16


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel.

    Attributes:
        kernel: its name.
        move: its only argument, passed by value.
        blocks: of `THREADS` threads, for each section.
        sections: blocks along y.
    """

    kernel: str
    move: bytes
    blocks: int
    sections: int


def launches(
    table: Sequence[int],
    tensors: Sequence[int],
    wire: int,
    to_wire: bool,
    bytes_per_element: int,
    number: str,
    most_blocks: int,
) -> Iterator[Launch]:
    """What moves one end: a launch for sections that are copied, one for those whose copies are added up.

    Args:
        table: integers of the sections (`layouts.section.table`).
        tensors, wire: addresses.
        number: torch's name of the type.
        most_blocks: that keep the GPU busy; threads loop over what is more.

    Raises:
        ValueError: copies of this type cannot be added up.
    """
    sections = [table[start : start + _INTEGERS] for start in range(0, len(table), _INTEGERS)]
    summed = [not to_wire and section[_COPIES] > 1 and section[_COPY_STRIDE] == 0 for section in sections]
    if any(summed) and number not in SUMMED:
        raise ValueError(f"Copies of {number} cannot be added up.")
    for kernel, sums in (("copy_sections", False), (f"sum_sections_{number}", True)):
        chosen = [section for section, of_sum in zip(sections, summed, strict=True) if of_sum == sums]
        most_elements = max((section[_WIDTH] * math.prod(section[_EXTENTS]) for section in chosen), default=0)
        if most_elements == 0:
            continue
        threads = -(-most_elements * bytes_per_element // _BYTES_OF_THREAD)
        blocks = min(most_blocks, -(-threads // THREADS))
        yield Launch(kernel, _move(chosen, tensors, wire, bytes_per_element, to_wire), blocks, len(chosen))


def _move(
    sections: Sequence[Sequence[int]], tensors: Sequence[int], wire: int, bytes_per_element: int, to_wire: bool
) -> bytes:
    assert len(sections) <= MAX_SECTIONS and len(tensors) <= MAX_SECTIONS, "too many for one launch"
    no_sections = [0] * (_INTEGERS * (MAX_SECTIONS - len(sections)))
    no_tensors = [0] * (MAX_SECTIONS - len(tensors))
    integers = [*chain(*sections), *no_sections, *tensors, *no_tensors, wire, bytes_per_element, int(to_wire)]
    return struct.pack(f"={len(integers)}q", *integers)
