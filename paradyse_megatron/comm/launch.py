"""What a launch of a GPU kernel gets: its argument (`csrc/kernels/*.cu`) as an array of integers, and its grid."""

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

KERNELS = ("copy_sections", *(f"sum_sections_{number}" for number in SUMMED), "store_sections", "meet_peers")

_AXES = len(Axes._fields)
_INTEGERS = 4 + 3 * _AXES
_WIDTH, _EXTENTS, _COPIES, _COPY_STRIDE = 1, slice(4, 4 + _AXES), 4 + 1, 4 + _AXES + 1
_BYTES_OF_THREAD = 4 * 16


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel.

    Attributes:
        kernel: its name.
        argument: its only one, passed by value.
        blocks: of `THREADS` threads, for each section.
        sections: blocks along y.
    """

    kernel: str
    argument: bytes
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
        blocks = _blocks(chosen, bytes_per_element, most_blocks)
        if blocks:
            move = _packed(*_filled(chosen), *_padded(tensors), wire, bytes_per_element, int(to_wire))
            yield Launch(kernel, move, blocks, len(chosen))


def stores(
    table: Sequence[int],
    first_peers: Sequence[int],
    tensors: Sequence[int],
    peers: int,
    num_peers: int,
    window_bytes: int,
    number: int,
    bytes_per_element: int,
    most_blocks: int,
) -> Iterator[Launch]:
    """What stores a rank's tensors into its peers' windows.

    Args:
        table: integers of the sections (`layouts.direct.peer_sections`).
        first_peers: of each.
        tensors: addresses.
        peers: address of an array of the addresses where the peers' workspaces begin.
        window_bytes: of each of their windows.
        number: of the exchange, which tells the window.
        most_blocks: as in `launches`.
    """
    sections = [table[start : start + _INTEGERS] for start in range(0, len(table), _INTEGERS)]
    for first in range(0, len(sections), MAX_SECTIONS):
        chosen = sections[first : first + MAX_SECTIONS]
        blocks = _blocks(chosen, bytes_per_element, most_blocks)
        if blocks:
            firsts = _padded(first_peers[first : first + MAX_SECTIONS])
            move = _packed(
                *_filled(chosen), *_padded(tensors), peers, num_peers, window_bytes, number, *firsts, bytes_per_element
            )  # fmt: skip
            yield Launch("store_sections", move, blocks, len(chosen))


def meeting(peers: int, num_peers: int, rank: int, number: int, limit_ns: int) -> Launch:
    """What tells all peers that the stores of an exchange are there, and waits for theirs."""
    return Launch("meet_peers", _packed(peers, num_peers, rank, number, limit_ns), 1, 1)


def _blocks(sections: Sequence[Sequence[int]], bytes_per_element: int, most_blocks: int) -> int:
    """For each section; 0 if nothing has to move."""
    most_elements = max((section[_WIDTH] * math.prod(section[_EXTENTS]) for section in sections), default=0)
    threads = -(-most_elements * bytes_per_element // _BYTES_OF_THREAD)
    return min(most_blocks, -(-threads // THREADS))


def _filled(sections: Sequence[Sequence[int]]) -> list[int]:
    assert len(sections) <= MAX_SECTIONS, "too many sections for one launch"
    return [*chain(*sections), *[0] * (_INTEGERS * (MAX_SECTIONS - len(sections)))]


def _padded(numbers: Sequence[int]) -> list[int]:
    assert len(numbers) <= MAX_SECTIONS, "too many tensors for one launch"
    return [*numbers, *[0] * (MAX_SECTIONS - len(numbers))]


def _packed(*integers: int) -> bytes:
    return struct.pack(f"={len(integers)}q", *integers)
