"""What to time next, within a budget of seconds. Arithmetic on samples; nothing is run here.

First a climb: every target at lengths an octave apart, from the shortest, as far up as the budget allows. Then sweeps
over all points in an order shuffled anew each time, so that a drift of the machine's speed hits all targets alike. Once
each point has a few samples, every octave gets a point in its middle, where interpolation is put to the test, and where
it turns out wrong by more than `BEND` and by more than noise makes it, points are added on both sides, at the sharpest
bends first.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from paradyse_megatron.costmodel import fit
from paradyse_megatron.layouts.padding import padding_multiple

MIN_SAMPLES = 3
MAX_SAMPLES = 25
CLIMB_SHARE = 0.5  # of the budget that one more octave may take, all its samples included
GROWTH = 4.0  # an octave takes at most that many times longer than the one below
BEND = 0.03  # relative deviation from interpolation that asks for more points
SURE = 2.0  # standard errors by which a deviation must be above that, or noise would draw all points to one target
CLOSEST = 2**0.25  # ratio of neighbouring lengths between which there is nothing to find

Point = tuple[str, int]
"""A target (an option's text, or "head:whole", "head:chunked") and a length in tokens."""


@dataclass
class Samples:
    """Milliseconds of each point, in the order they were taken."""

    of: dict[Point, list[float]] = field(default_factory=dict)

    def add(self, point: Point, milliseconds: float) -> None:
        """Take down one more."""
        self.of.setdefault(point, []).append(milliseconds)

    def median(self, point: Point) -> float:
        """Of one point's samples, of which there is at least one."""
        return statistics.median(self.of[point])

    def lengths(self, target: str) -> list[int]:
        """At which the target was timed, shortest first."""
        return sorted(length for name, length in self.of if name == target)


class Schedule:
    """Says which point comes next, given what has been sampled and how many seconds are left.

    Args:
        targets: what to time.
        shortest, longest: bounds of the lengths, in tokens.
        group_size: P; lengths are padded for it.
        fits: whether a point fits in memory.
        budget_seconds: for everything.
        samples: what an interrupted profile had already.
    """

    def __init__(
        self,
        targets: Sequence[str],
        shortest: int,
        longest: int,
        group_size: int,
        fits: Callable[[str, int], bool],
        budget_seconds: float,
        samples: Samples | None = None,
    ):
        self.targets, self.samples = tuple(targets), samples or Samples()
        self._multiple, self._fits, self._budget_seconds = padding_multiple(group_size), fits, budget_seconds
        self.rungs = octaves(shortest, longest, self._multiple)
        self._points: list[Point] = list(self.samples.of)
        self._queue: list[Point] = []
        self._num_climbed = 0
        self._took: dict[Point, float] = {}
        self._random = random.Random(0)
        self._has_middles = False

    def next(self, seconds_left: float) -> Point | None:
        """The point to time now; None when the budget is used up or nothing more is to be learnt."""
        while True:
            if not self._queue and not self._refill(seconds_left):
                return None
            point = self._queue.pop()
            if self._seconds(point) <= seconds_left:
                return point

    def took(self, point: Point, seconds: float) -> None:
        """Be told how long a sample took to take: a stack of layers runs for the time of one."""
        self._took[point] = seconds

    def _refill(self, seconds_left: float) -> bool:
        if seconds_left > 0 and self._may_climb(seconds_left):
            rung = self.rungs[self._num_climbed]
            self._num_climbed += 1
            new = [(target, rung) for target in self.targets if self._fits(target, rung)]
            self._queue = self._with(new)
            return bool(self._queue) or self._refill(seconds_left)
        if not self._lacking():
            self._add_points(seconds_left)
        wanted = self._lacking() or [point for point in self._points if len(self.samples.of[point]) < MAX_SAMPLES]
        self._queue = [point for point in wanted if self._seconds(point) <= seconds_left]
        self._random.shuffle(self._queue)
        return bool(self._queue)

    def _with(self, points: Iterable[Point]) -> list[Point]:
        """Those of `points` that are new, taken up."""
        new = [point for point in points if point not in self._points]
        self._points += new
        return new

    def _may_climb(self, seconds_left: float) -> bool:
        if self._num_climbed == len(self.rungs):
            return False
        if self._num_climbed == 0:
            return True
        rung = [(target, self.rungs[self._num_climbed - 1]) for target in self.targets]
        sweep = sum(self._seconds(point) for point in rung if point in self.samples.of)
        return GROWTH * sweep * MIN_SAMPLES <= CLIMB_SHARE * min(seconds_left, self._budget_seconds)

    def _seconds(self, point: Point) -> float:
        """What one more sample of it is expected to take; nothing is known of a new length's first."""
        if point in self.samples.of:
            return self._took.get(point, self.samples.median(point) / 1000)
        shorter = [length for length in self.samples.lengths(point[0]) if length < point[1]]
        if not shorter:
            return 0.0
        return self._seconds((point[0], shorter[-1])) * (point[1] / shorter[-1]) ** 2

    def _lacking(self) -> list[Point]:
        """Points with too few samples."""
        return [point for point in self._points if len(self.samples.of.get(point, ())) < MIN_SAMPLES]

    def _add_points(self, seconds_left: float) -> None:
        """Between those there are, as far as there is time for enough samples of them."""
        for point in self._with(self._around_bends() if self._has_middles else self._middles()):
            seconds_left -= MIN_SAMPLES * self._seconds(point)
            if seconds_left < 0:
                self._points.remove(point)
        self._has_middles = True

    def _middles(self) -> list[Point]:
        return [
            (target, self._between(low, high))
            for target in self.targets
            for low, high in pairwise(self.samples.lengths(target))
        ]

    def _around_bends(self) -> list[Point]:
        """On both sides of every bend, the sharpest first."""
        error = fit.sample_error(self.samples.of)
        found: list[tuple[float, Point]] = []
        for target in self.targets:
            lengths = self.samples.lengths(target)
            for near in zip(lengths, lengths[1:], lengths[2:], strict=False):
                low, middle, high = ((length, self.samples.median((target, length))) for length in near)
                bend = deviation(low, middle, high) - SURE * self._error_of_deviation(target, near, error)
                if bend > BEND:
                    sides = (self._between(*side) for side in pairwise(near) if side[1] > CLOSEST * side[0])
                    found += [(bend, (target, length)) for length in sides if length not in lengths]
        return [point for _, point in sorted(found, reverse=True)]

    def _error_of_deviation(self, target: str, lengths: Sequence[int], sample_error: float) -> float:
        """Standard error of `deviation`, relative, from that of a sample: medians of few, the outer two averaged."""
        low, middle, high = (fit.median_error(sample_error, len(self.samples.of[target, length])) for length in lengths)
        return math.hypot(middle, low / 2, high / 2)

    def _between(self, low: int, high: int) -> int:
        return round(math.sqrt(low * high) / self._multiple) * self._multiple


def octaves(shortest: int, longest: int, multiple: int) -> list[int]:
    """Lengths that double, all multiples of `multiple`, from about `shortest` up to `longest`."""
    length = max(multiple, round(shortest / multiple) * multiple)
    found = []
    while length <= longest:
        found.append(length)
        length *= 2
    return found or [length]


def deviation(low: tuple[int, float], middle: tuple[int, float], high: tuple[int, float]) -> float:
    """Relative distance of the middle's time from the power law through the other two; points are (tokens, ms)."""
    slope = math.log(high[1] / low[1]) / math.log(high[0] / low[0])
    expected = low[1] * (middle[0] / low[0]) ** slope
    return abs(middle[1] / expected - 1)
