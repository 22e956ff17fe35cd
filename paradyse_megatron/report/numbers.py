"""The numbers behind a report: from the lines of a trace to what is plotted, as plain values that also go to JSON."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paradyse_megatron.report.summary import buckets, tokens_per_second
from paradyse_megatron.runtime.metrics import option_shares, plan_changes, plan_runs
from paradyse_megatron.runtime.trace import TraceLine

MAX_STEPS = 60
"""Groups of iterations in the plot of shares: more would be thinner than a line."""


@dataclass(frozen=True)
class Segment:
    """Neighbouring lengths that got the same plan (the one most often followed, where a length got several).

    Attributes:
        shortest, longest: tokens after padding.
        plan: its text.
        microbatches: how many there were of these lengths.
    """

    shortest: int
    longest: int
    plan: str
    microbatches: int


@dataclass(frozen=True)
class Step:
    """A group of consecutive iterations.

    Attributes:
        first, last: iterations.
        shares: of layers by option, adding up to 1.
        loss: mean over micro-batches; None where not known.
    """

    first: int
    last: int
    shares: dict[str, float]
    loss: float | None


@dataclass(frozen=True)
class Bucket:
    """An octave of lengths.

    Attributes:
        shortest, longest: bounds in tokens after padding.
        microbatches, tokens: how many; tokens are real ones.
        measured_ms, predicted_ms: medians of a micro-batch; None where not known.
        plans: how often each was followed.
    """

    shortest: int
    longest: int
    microbatches: int
    tokens: int
    measured_ms: float | None
    predicted_ms: float | None
    plans: dict[str, int]


@dataclass(frozen=True)
class Numbers:
    """All that a report shows.

    Attributes:
        headline: single numbers by name, units in the names; None where not known.
        num_layers: layers of a plan, 1 where every plan was uniform.
        segments, steps, buckets: see there.
        lines: the micro-batches themselves, in the order of the run.
    """

    headline: dict[str, float | None]
    num_layers: int
    segments: tuple[Segment, ...]
    steps: tuple[Step, ...]
    buckets: tuple[Bucket, ...]
    lines: tuple[TraceLine, ...]

    @property
    def options(self) -> list[str]:
        """Every option that some layer ran, most used first."""
        return list(option_shares(line.plan for line in self.lines))

    def as_dict(self) -> dict[str, Any]:
        """For JSON, with one entry a micro-batch for the plots of predicted against measured."""
        return asdict(self)


def numbers(lines: Sequence[TraceLine]) -> Numbers:
    """Count. `lines` are of any ranks, at least one."""
    ordered = tuple(sorted(lines, key=lambda line: (line.iteration, line.microbatch, line.rank)))
    return Numbers(
        headline=_headline(ordered),
        num_layers=max(sum(count for _, count in plan_runs(line.plan)) for line in ordered),
        segments=tuple(_segments(ordered)),
        steps=tuple(_steps(ordered)),
        buckets=tuple(_bucket(bounds, members) for bounds, members in buckets(list(ordered)).items()),
        lines=ordered,
    )


def _headline(lines: Sequence[TraceLine]) -> dict[str, float | None]:
    real, padded = sum(line.seq_length for line in lines), sum(line.padded_length for line in lines)
    fifth = max(1, len(lines) // 5)
    timed_ms = sum(line.measured_ms or 0.0 for line in lines)
    decisions_ms = sum(line.decision_us for line in lines if line.measured_ms) / 1000
    by_rank = [[line.plan for line in lines if line.rank == rank] for rank in sorted({line.rank for line in lines})]
    return {
        "iterations": len({line.iteration for line in lines}),
        "microbatches": len(lines),
        "real_tokens": real,
        "tokens_per_second": tokens_per_second(list(lines)),
        "padding_pct": 100 * (padded - real) / padded,
        "lengths": len({line.padded_length for line in lines}),
        "shortest_tokens": min(line.seq_length for line in lines),
        "longest_tokens": max(line.seq_length for line in lines),
        "plans": len({line.plan for line in lines}),
        "plan_changes": sum(plan_changes(plans) for plans in by_rank),
        "loss_first_fifth": _mean(line.loss for line in lines[:fifth]),
        "loss_last_fifth": _mean(line.loss for line in lines[-fifth:]),
        "time_measured_over_predicted": _median_ratio((line.measured_ms, line.predicted_ms) for line in lines),
        "memory_measured_over_predicted": _median_ratio((line.measured_bytes, line.predicted_bytes) for line in lines),
        "peak_bytes": max((line.measured_bytes for line in lines if line.measured_bytes), default=None),
        "decision_us_median": statistics.median(line.decision_us for line in lines),
        "decision_us_longest": max(line.decision_us for line in lines),
        "decision_share_pct": 100 * decisions_ms / timed_ms if timed_ms else None,
    }


def _segments(lines: Sequence[TraceLine]) -> list[Segment]:
    plans_of: dict[int, Counter[str]] = {}
    for line in lines:
        plans_of.setdefault(line.padded_length, Counter())[line.plan] += 1
    found: list[Segment] = []
    for length, plans in sorted(plans_of.items()):
        plan, total = plans.most_common(1)[0][0], plans.total()
        if found and found[-1].plan == plan:
            before = found.pop()
            found.append(Segment(before.shortest, length, plan, before.microbatches + total))
        else:
            found.append(Segment(length, length, plan, total))
    return found


def _steps(lines: Sequence[TraceLine]) -> list[Step]:
    iterations = sorted({line.iteration for line in lines})
    width = -(-len(iterations) // MAX_STEPS)
    found = []
    for start in range(0, len(iterations), width):
        first, last = iterations[start], iterations[min(start + width, len(iterations)) - 1]
        members = [line for line in lines if first <= line.iteration <= last]
        shares = option_shares(line.plan for line in members)
        found.append(Step(first, last, shares, _mean(line.loss for line in members)))
    return found


def _bucket(bounds: tuple[int, int], members: Sequence[TraceLine]) -> Bucket:
    return Bucket(
        *bounds,
        microbatches=len(members),
        tokens=sum(line.seq_length for line in members),
        measured_ms=_median(line.measured_ms for line in members),
        predicted_ms=_median(line.predicted_ms for line in members),
        plans=dict(Counter(line.plan for line in members).most_common()),
    )


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _median(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _median_ratio(pairs: Any) -> float | None:
    return _median(measured / predicted for measured, predicted in pairs if measured is not None and predicted)
