"""What a launch of a GPU kernel gets: its argument (`csrc/kernels/*.cu`) as an array of integers, and its grid."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import batched, chain

from paradyse_megatron.layouts.rotary import TokenPlaces
from paradyse_megatron.layouts.section import Axes

THREADS = 128
MAX_SECTIONS = 4
NUMBERS = ("float32", "float64", "bfloat16", "float16")
"""Types whose copies can be added up, and that can be rotated; there are kernels for each."""

WIRE_KERNELS = ("copy_sections", *(f"{work}_sections_{one}" for work in ("sum", "rotate") for one in NUMBERS))
DIRECT_KERNELS = ("store_sections", *(f"store_rotated_{one}" for one in NUMBERS), "meet_peers")
KERNELS = (*WIRE_KERNELS, *DIRECT_KERNELS)

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


@dataclass(frozen=True)
class Rotary:
    """How sections are rotated on their way to the wire; the twin of `csrc/kernels/rotary.h`.

    Attributes:
        tables: addresses of cosines and sines.
        numbers: head size, how many numbers of a head are rotated, whether pairs are neighbours, the first token.
        places: of each section; of none where nothing is rotated.
    """

    tables: tuple[int, int] = (0, 0)
    numbers: tuple[int, int, int, int] = (0, 0, 0, 0)
    places: tuple[TokenPlaces, ...] = ()

    def rotates(self, section: int) -> bool:
        """Whether the section with this index is."""
        return bool(self.places) and self.places[section].stride > 0

    def integers(self, sections: Sequence[int]) -> list[int]:
        """For a launch of these sections."""
        places = [self.places[section] for section in sections] if self.places else []
        within, stride = ([place[which] for place in places] for which in (0, 1))
        return [*self.tables, *self.numbers, *_padded(within), *_padded(stride)]

    def packed(self, sections: Sequence[int]) -> bytes:
        """The same as bytes."""
        return _packed(*self.integers(sections))


UNROTATED = Rotary()


def launches(
    table: Sequence[int],
    tensors: Sequence[int],
    wire: int,
    to_wire: bool,
    bytes_per_element: int,
    number: str,
    most_blocks: int,
    rotary: Rotary = UNROTATED,
) -> Iterator[Launch]:
    """What moves one end: a launch for sections that are copied, are rotated, or whose copies are added up.

    Args:
        table: integers of the sections (`layouts.section.table`).
        tensors, wire: addresses.
        number: torch's name of the type.
        most_blocks: that keep the GPU busy; threads loop over what is more.
        rotary: to the wire.

    Raises:
        ValueError: numbers of this type are neither added up nor rotated.
    """
    sections = [table[start : start + _INTEGERS] for start in range(0, len(table), _INTEGERS)]
    works = [_work(section, to_wire, rotary.rotates(index)) for index, section in enumerate(sections)]
    for work in dict.fromkeys(works):
        chosen = [index for index, other in enumerate(works) if other == work]
        blocks = _blocks([sections[index] for index in chosen], bytes_per_element, most_blocks)
        if blocks:
            move = _packed(*_filled([sections[index] for index in chosen]), *_padded(tensors), wire, bytes_per_element,
                           int(to_wire), *rotary.integers(chosen))  # fmt: skip
            yield Launch(_kernel(f"{work}_sections", work != "copy", number), move, blocks, len(chosen))


def stores(
    table: Sequence[int],
    first_peers: Sequence[int],
    tensors: Sequence[int],
    peers: int,
    num_peers: int,
    window_bytes: int,
    number: int,
    bytes_per_element: int,
    number_type: str,
    most_blocks: int,
    rotary: Rotary = UNROTATED,
) -> Iterator[Launch]:
    """What stores a rank's tensors into its peers' windows.

    Args:
        table: integers of the sections (`layouts.direct.peer_sections`).
        first_peers: of each.
        tensors: addresses.
        peers: address of an array of the addresses where the peers' workspaces begin.
        window_bytes: of each of their windows.
        number: of the exchange, which tells the window.
        number_type: torch's name of it.
        most_blocks, rotary: as in `launches`.
    """
    sections = [table[start : start + _INTEGERS] for start in range(0, len(table), _INTEGERS)]
    for turns, kernel in ((False, "store_sections"), (True, "store_rotated")):
        of_kernel = [index for index in range(len(sections)) if rotary.rotates(index) == turns]
        for chosen in map(list, batched(of_kernel, MAX_SECTIONS)):
            blocks = _blocks([sections[index] for index in chosen], bytes_per_element, most_blocks)
            if blocks:
                move = _packed(
                    *_filled([sections[index] for index in chosen]), *_padded(tensors), peers, num_peers, window_bytes,
                    number, *_padded([first_peers[index] for index in chosen]), bytes_per_element,
                    *rotary.integers(chosen)
                )  # fmt: skip
                yield Launch(_kernel(kernel, turns, number_type), move, blocks, len(chosen))


def meeting(peers: int, num_peers: int, rank: int, number: int, limit_ns: int) -> Launch:
    """What tells all peers that the stores of an exchange are there, and waits for theirs."""
    return Launch("meet_peers", _packed(peers, num_peers, rank, number, limit_ns), 1, 1)


def _work(section: Sequence[int], to_wire: bool, rotates: bool) -> str:
    if rotates:
        return "rotate"
    return "sum" if not to_wire and section[_COPIES] > 1 and section[_COPY_STRIDE] == 0 else "copy"


def _kernel(name: str, calculates: bool, number: str) -> str:
    if calculates and number not in NUMBERS:
        raise ValueError(f"Numbers of type {number} are neither added up nor rotated.")
    return f"{name}_{number}" if calculates else name


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
