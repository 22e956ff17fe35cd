"""What goes to TensorBoard and Weights & Biases, through Megatron's own writers, once a logging interval.

Megatron writes on the last rank alone; so the micro-batches are those of that rank's data-parallel replica, and rates
and sums are per replica. Every key begins with `paradyse/`; what an interval does not know is left out.

| key                         | over the micro-batches of a logging interval                                     |
|-----------------------------|----------------------------------------------------------------------------------|
| `tokens_per_second`         | real tokens over the time of forward and backward                                |
| `measured-ms`               | mean time of a micro-batch's forward and backward                                |
| `predicted-ms`              | mean of what the cost model predicted for the same                               |
| `predict-error-pct`         | mean of |predicted - measured| over measured, in per cent                        |
| `measured-peak-bytes`       | largest peak of memory                                                           |
| `predicted-peak-bytes`      | largest predicted peak                                                           |
| `memory-error-pct`          | mean of |predicted - measured| peak over measured, in per cent                   |
| `padding-pct`               | padding's share of the tokens, in per cent                                       |
| `seq-length-mean`           | real tokens of a micro-batch's longest sample                                    |
| `seq-length-max`            | the same at most                                                                 |
| `plan_changes`              | micro-batches whose plan is not that of the one before, the interval's first too |
| `plans`                     | different plans                                                                  |
| `decision-us`               | median time that finding a plan took                                             |
| `loss`                      | mean loss of micro-batches, each counting once                                   |
| `share/OPTION`              | share of all layers of all micro-batches that ran OPTION, from 0 to 1            |
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from paradyse_megatron.runtime.trace import TraceLine

PREFIX = "paradyse/"
KEYS = (
    "tokens_per_second measured-ms predicted-ms predict-error-pct measured-peak-bytes predicted-peak-bytes "
    "memory-error-pct padding-pct seq-length-mean seq-length-max plan_changes plans decision-us loss"
).split()
"""All but those of options, without the prefix."""


def metrics(lines: Sequence[TraceLine], plan_before: str | None = None) -> dict[str, float]:
    """Values by full key; none for no line.

    Args:
        lines: of one rank, in the order they ran.
        plan_before: plan of the micro-batch before the first.
    """
    if not lines:
        return {}
    known = {name: value for name, value in _values(lines, plan_before) if value is not None}
    shares = {f"share/{option}": share for option, share in option_shares(line.plan for line in lines).items()}
    return {PREFIX + name: float(value) for name, value in (known | shares).items()}


def option_shares(plans: Iterable[str]) -> dict[str, float]:
    """Of all layers of all plans, the share that has each option; most first."""
    shares: Counter[str] = Counter()
    for plan, times in Counter(plans).items():
        runs = plan_runs(plan)
        num_layers = sum(count for _, count in runs)
        for option, count in runs:
            shares[option] += times * count / num_layers  # type: ignore[assignment]
    total = sum(shares.values())
    return {option: share / total for option, share in shares.most_common()}


def plan_runs(plan: str) -> list[tuple[str, int]]:
    """Options of a plan's text with their counts; a uniform plan, which names no count, as one layer."""
    layers, _, _ = plan.partition(";")
    items = [item.partition("*") for item in layers.split(",")]
    return [(option, int(count or 1)) for option, _, count in items]


def _values(lines: Sequence[TraceLine], plan_before: str | None) -> Iterator[tuple[str, float | None]]:
    timed = [line for line in lines if line.measured_ms]
    milliseconds = [line.measured_ms or 0.0 for line in timed]
    predicted = [line.predicted_ms for line in lines if line.predicted_ms is not None]
    losses = [line.loss for line in lines if line.loss is not None]
    lengths = [line.seq_length for line in lines]
    padded = sum(line.padded_length for line in lines)
    yield "tokens_per_second", 1e3 * sum(line.seq_length for line in timed) / sum(milliseconds) if timed else None
    yield "measured-ms", _mean(milliseconds)
    yield "predicted-ms", _mean(predicted)
    yield "predict-error-pct", _error_pct((line.predicted_ms, line.measured_ms) for line in lines)
    yield "measured-peak-bytes", max((line.measured_bytes for line in lines if line.measured_bytes), default=None)
    yield "predicted-peak-bytes", max((line.predicted_bytes for line in lines if line.predicted_bytes), default=None)
    yield "memory-error-pct", _error_pct((line.predicted_bytes, line.measured_bytes) for line in lines)
    yield "padding-pct", 100 * (padded - sum(lengths)) / padded
    yield "seq-length-mean", _mean(lengths)
    yield "seq-length-max", max(lengths)
    yield "plan_changes", plan_changes([line.plan for line in lines], plan_before)
    yield "plans", len({line.plan for line in lines})
    yield "decision-us", statistics.median(line.decision_us for line in lines)
    yield "loss", _mean(losses)


def plan_changes(plans: Sequence[str], before: str | None = None) -> int:
    """How many of `plans` differ from the one before them."""
    sequence = [before, *plans] if before is not None else list(plans)
    return sum(mine != earlier for earlier, mine in itertools.pairwise(sequence))


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _error_pct(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    """Mean of |predicted - measured| / measured in per cent, over pairs where both are known."""
    known = [(predicted, measured) for predicted, measured in pairs if predicted is not None and measured]
    return _mean([100 * abs(predicted - measured) / measured for predicted, measured in known])
