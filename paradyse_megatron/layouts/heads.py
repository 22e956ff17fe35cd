"""Which heads a rank attends with after an all-to-all, and in how many chunks: integers.

Query heads are dealt evenly: rank r of P owns heads r a/P to (r+1) a/P - 1. With g key/value heads and
    g a multiple of P: rank r owns key/value heads r g/P to (r+1) g/P - 1, those of its query heads;
    P a multiple of g: P/g consecutive ranks share one key/value head, and each gets a copy: at P = 8, g = 2 the ranks
    have 0, 0, 0, 0, 1, 1, 1, 1, and again each rank has what its query heads need.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

NumChunks = int | Literal["fewest_bytes", "fastest"]
"""A wish for a number of head chunks, see `num_head_chunks`."""

CHUNKS_WANTED: dict[str, NumChunks] = {"upipe": "fewest_bytes", "upipe2": "fastest"}
"""The attention strategies that work chunk of heads by chunk of heads, and how many chunks each of them wants."""


@dataclass(frozen=True)
class HeadDealing:
    """How the heads are dealt to the ranks of an all-to-all.

    Attributes:
        num_heads, num_groups: query heads a and key/value heads g of the whole layer.
        num_ranks: P.

    Raises:
        ValueError: the heads cannot be dealt evenly.
    """

    num_heads: int
    num_groups: int
    num_ranks: int

    def __post_init__(self) -> None:
        if self.num_heads % self.num_ranks:
            raise ValueError(f"{self.num_heads} attention heads cannot be dealt evenly to {self.num_ranks} ranks.")
        if self.num_groups % self.num_ranks and self.num_ranks % self.num_groups:
            raise ValueError(
                f"{self.num_groups} key/value heads can be neither dealt evenly to {self.num_ranks} ranks "
                "nor each shared by as many."
            )

    @property
    def num_copies(self) -> int:
        """Ranks that share a key/value head."""
        return max(1, self.num_ranks // self.num_groups)

    @property
    def own_heads(self) -> int:
        """Query heads of a rank."""
        return self.num_heads // self.num_ranks

    @property
    def own_groups(self) -> int:
        """Key/value heads of a rank, copies included."""
        return max(1, self.num_groups // self.num_ranks)

    @property
    def heads_per_own_group(self) -> int:
        """Query heads of a rank for each of its key/value heads."""
        return self.own_heads // self.own_groups


@dataclass(frozen=True)
class HeadChunk:
    """The heads that all ranks attend with at the same time: the same ones of each rank's own.

    Attributes:
        groups: key/value heads, counted among a rank's own.
        heads: query heads, counted among those of each of these key/value heads.
        brings_keys: whether the key/value heads are not those of the chunk before.
        ends_keys: whether they are not those of the chunk after.
    """

    groups: slice
    heads: slice
    brings_keys: bool
    ends_keys: bool

    @property
    def num_groups(self) -> int:
        """Key/value heads a rank."""
        return self.groups.stop - self.groups.start

    @property
    def num_heads(self) -> int:
        """Query heads a rank."""
        return self.num_groups * (self.heads.stop - self.heads.start)


def head_chunks(dealing: HeadDealing, wanted: NumChunks) -> tuple[HeadChunk, ...]:
    """`num_head_chunks` chunks in the order of a rank's own heads, each of which is in one of them."""
    number, own_groups, in_group = num_head_chunks(dealing, wanted), dealing.own_groups, dealing.heads_per_own_group
    if number <= own_groups:
        return tuple(HeadChunk(groups, slice(0, in_group), True, True) for groups in _cut(own_groups, number))
    return tuple(
        HeadChunk(groups, heads, heads.start == 0, heads.stop == in_group)
        for groups in _cut(own_groups, own_groups)
        for heads in _cut(in_group, number // own_groups)
    )


def num_head_chunks(dealing: HeadDealing, wanted: NumChunks) -> int:
    """How many chunks a rank's heads are cut into.

    Up to one a key/value head, chunks hold whole key/value heads. Beyond, the query heads of each key/value head are
    cut into equally many parts, so the number is a multiple of the rank's key/value heads.

    Args:
        wanted: a number, which is met as nearly as the heads allow without exceeding it; or `fewest_bytes`, one query
            head a rank at a time; or `fastest`, two, the fewest that let one chunk's exchange run beside another's
            attention.

    Raises:
        ValueError: a number below 1.
    """
    number = {"fewest_bytes": dealing.own_heads, "fastest": 2}[wanted] if isinstance(wanted, str) else wanted
    if number < 1:
        raise ValueError(f"The number of head chunks must be at least 1, but it is {number}.")
    number = min(number, dealing.own_heads)
    return number if number <= dealing.own_groups else number // dealing.own_groups * dealing.own_groups


def _cut(length: int, num_parts: int) -> list[slice]:
    """0 to `length` in parts that differ by at most one."""
    bounds = [length * part // num_parts for part in range(num_parts + 1)]
    return [slice(*pair) for pair in itertools.pairwise(bounds)]
