"""Which lengths to weigh memory at: longer ones each time, while that does not take too long.

Short lengths tell little, since what messages hold by chance is as much there as what tensors hold; and how long a
length may be does not follow from the lengths that were timed, which a slow network keeps short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from paradyse_megatron.layouts.padding import padding_multiple
from paradyse_megatron.profiling.schedule import Point, octaves

SHORTEST_TOKENS, LONGEST_TOKENS = 128, 2048
"""Of a sequence on each rank, to begin and to end with."""
MEMORY_POINTS = 3
"""Lengths of a target that count, its longest: the curve is known, a correction is sought."""
GROWTH = 3.0
"""An octave takes about that many times as long as the one below."""


def rounds(
    longest: Mapping[str, int], group_size: int, seconds: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[list[Point]]:
    """Points of all targets, an octave longer each time; ends when one more round would not fit into `seconds`.

    Args:
        longest: of each target, in tokens; it is weighed at that length in place of a longer one.
        group_size: P.
        seconds: for all rounds; the first takes what it takes.
        clock: in seconds.
    """
    multiple = padding_multiple(group_size)
    shortest = min(SHORTEST_TOKENS * group_size, min(longest.values()) // 4)
    known: set[Point] = set()
    for rung in octaves(shortest, LONGEST_TOKENS * group_size, multiple):
        begin = clock()
        points = [point for target, most in longest.items() if (point := (target, min(rung, most))) not in known]
        known.update(points)
        yield points
        took = clock() - begin
        seconds -= took
        if GROWTH * took > seconds:
            return


def that_count(peak_bytes: Mapping[Point, int]) -> dict[Point, int]:
    """Of each target the peaks at its longest lengths."""
    lengths: dict[str, list[int]] = {}
    for target, length in peak_bytes:
        lengths.setdefault(target, []).append(length)
    return {
        (target, length): num_bytes
        for (target, length), num_bytes in peak_bytes.items()
        if length in sorted(lengths[target])[-MEMORY_POINTS:]
    }
