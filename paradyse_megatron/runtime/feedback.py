"""What training measures corrects what plans are made by: `--paradyse-feedback`.

Off unless asked for. A plan is otherwise a function of the length and of the arguments, so that a resumed run repeats
an uninterrupted one to the last bit; with feedback, plans also depend on what was measured, and runs agree up to
rounding only.

Corrections are bounded, and the same on all ranks: each brings what it measured (`observe`), and all of them learn the
same from all of it (`learn`). They concern
- memory: where a peak was above its prediction, the difference is kept free from then on, up to `MAX_RESERVE` of what
  activations may take;
- time: an option that takes longer than predicted *in comparison with the others* is predicted to, up to twice. What
  all have in common, such as a slow machine or a clock that is fast, says nothing about which one is best.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paradyse_megatron.costmodel.measured import scaled
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.planner.stages import PipelinePlanner
from paradyse_megatron.runtime.decision import PlannedByLength
from paradyse_megatron.runtime.metrics import plan_runs
from paradyse_megatron.runtime.trace import TraceLine

MAX_RESERVE = 0.25
"""Of the budget for activations."""
STEPS_PER_OCTAVE = 64
"""Factors of time are powers of 2 ** (1 / 64), kept as whole exponents: no two ranks round them differently."""
MAX_STEPS = STEPS_PER_OCTAVE
"""A factor is between a half and two."""
PRUDENCE = 4.0
"""Micro-batches that count as if they had been as predicted."""
OUTLIER_OCTAVES = 2.0
"""One micro-batch, such as the first, counts no more than this."""

MakePlanner = Callable[[dict[str, float], int], PipelinePlanner]
"""From factors of time by option, and a budget in bytes."""


def corrected(costs: CostModel, factors: Mapping[str, float]) -> CostModel:
    """Costs with times multiplied by a factor an option: curves again, which the planner evaluates in C++."""
    return replace(
        costs,
        costs={
            kind: {
                option: replace(each, milliseconds=scaled(each.milliseconds, factors.get(option, 1.0)))
                for option, each in of_kind.items()
            }
            for kind, of_kind in costs.costs.items()
        },
    )


@dataclass(frozen=True)
class Correction:
    """What was learned: bytes to keep free, and exponents of time factors, one an option."""

    reserve_bytes: int
    steps: tuple[int, ...]


class PlannedWithFeedback:
    """A `Decider` that learns. What fits without corrections is never refused because of them."""

    def __init__(self, planned: PlannedByLength, make_planner: MakePlanner):
        self._start, self._now, self._make_planner = planned, planned, make_planner
        self._options = [str(option) for option in planned.planner.options]
        self.correction = Correction(0, (0,) * len(self._options))

    def decide(self, padded_length: int) -> Plan:
        """See `Decider`."""
        if self._now.planner.plan(padded_length).fits:
            return self._now.decide(padded_length)
        self._start.decide(padded_length)  # raises on a misfit
        return self._now.of_all_positions(replace(self._now.planner.plan(padded_length), fits=True))

    def predicted_peak_bytes(self, plan: Plan, resident_bytes: int) -> int | None:
        """See `Decider`."""
        return self._start.predicted_peak_bytes(plan, resident_bytes)

    def longest_fitting(self, limit: int) -> int | None:
        """See `Decider`."""
        return self._start.longest_fitting(limit)

    def misfit(self, padded_length: int) -> str:
        """See `Decider`."""
        return self._start.misfit(padded_length)

    def describe(self) -> dict[str, object]:
        """See `Decider`."""
        return self._start.describe() | {"--paradyse-feedback": True}

    def save_costs(self, path: Path) -> None:
        """See `Decider`."""
        self._start.save_costs(path)

    def state(self) -> int:
        """A hash of the corrections."""
        return zlib.crc32(repr(self.correction).encode())

    def observe(self, lines: Sequence[TraceLine]) -> list[float]:
        """What this rank brings: its largest overrun of memory in bytes, sums of octaves and of weights by option."""
        known = [(line.measured_bytes, line.predicted_bytes) for line in lines]
        overruns = [measured - predicted for measured, predicted in known if measured and predicted]
        sums, weights = [0.0] * len(self._options), [0.0] * len(self._options)
        for line, octaves in _relative_octaves(lines):
            runs = plan_runs(line.plan)
            for option, count in runs:
                share = count / sum(count for _, count in runs)
                sums[self._options.index(option)] += share * octaves
                weights[self._options.index(option)] += share
        return [float(max([0, *overruns])), *sums, *weights]

    def learn(self, rows: Sequence[Sequence[float]]) -> bool:
        """Take up what all ranks observed, in the order of the ranks; whether anything changed."""
        overrun, *columns = (list(column) for column in zip(*rows, strict=True))
        sums, weights = columns[: len(self._options)], columns[len(self._options) :]
        steps = tuple(map(_next_steps, self.correction.steps, map(math.fsum, sums), map(math.fsum, weights)))
        planner = self._start.planner
        bound = int(MAX_RESERVE * max(0, planner.memory_budget_bytes - self._start.static_bytes))
        learned = Correction(max(self.correction.reserve_bytes, min(bound, int(max(overrun)))), steps)
        changed, self.correction = learned != self.correction, learned
        if changed:
            factors = {o: 2.0 ** (n / STEPS_PER_OCTAVE) for o, n in zip(self._options, steps, strict=True)}
            budget = planner.memory_budget_bytes - learned.reserve_bytes
            self._now = replace(self._start, planner=self._make_planner(factors, budget))
        return changed

    def __str__(self) -> str:
        times = [
            f"{option} x{2.0 ** (steps / STEPS_PER_OCTAVE):.2f}"
            for option, steps in zip(self._options, self.correction.steps, strict=True)
            if steps
        ]
        return f"{self.correction.reserve_bytes:,} bytes kept free, times {', '.join(times) or 'as predicted'}"


def _relative_octaves(lines: Sequence[TraceLine]) -> list[tuple[TraceLine, float]]:
    """How much longer each line took than predicted, in octaves, compared with all of them."""
    timed = [
        (line, math.log2(line.measured_ms / line.predicted_ms))
        for line in lines
        if line.measured_ms and 0 < line.measured_ms < math.inf and line.predicted_ms
    ]
    if not timed:
        return []
    median = sorted(octaves for _, octaves in timed)[len(timed) // 2]
    bounded = [min(OUTLIER_OCTAVES, max(-OUTLIER_OCTAVES, octaves - median)) for _, octaves in timed]
    mean = math.fsum(bounded) / len(bounded)  # an option that all followed teaches nothing
    return [(line, octaves - mean) for (line, _), octaves in zip(timed, bounded, strict=True)]


def _next_steps(steps: int, octaves: float, weight: float) -> int:
    moved = steps + round(STEPS_PER_OCTAVE * octaves / (weight + PRUDENCE))
    return max(-MAX_STEPS, min(MAX_STEPS, moved))
