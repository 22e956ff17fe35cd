"""What a choice makes of the documents: time, memory, hours.

The same for every choice: documents come in steps of one global batch; each is a sequence of its own (not packed
together with others); replicas are dealt the documents longest first, each to the replica that is done first, and a
step ends with its slowest replica; gradients are reduced behind backward. A document that does not fit is left out and
counted, so only choices that complete all documents compare.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paradyse_megatron.simulation.choice import Choice, times
from paradyse_megatron.simulation.hybrid_context_parallel import HybridContextParallel

MS_PER_HOUR = 3_600_000


@dataclass(frozen=True)
class Outcome:
    """Of one choice.

    Attributes:
        name, kind: of the choice.
        step_ms: mean time of a step.
        gpu_hours_per_billion_tokens: of the documents that fit.
        longest_length: the longest sequence that fits, in tokens.
        oom_documents, oom_tokens: documents that do not fit.
    """

    name: str
    kind: str
    step_ms: float
    gpu_hours_per_billion_tokens: float
    longest_length: int
    oom_documents: int
    oom_tokens: int

    @property
    def completes(self) -> bool:
        """Whether every document fits."""
        return not self.oom_documents


def outcome(
    choice: Choice | HybridContextParallel, lengths: np.ndarray, global_batch: int, num_gpus: int, limit: int
) -> Outcome:
    """Run all documents once.

    Args:
        lengths: tokens of each document, in order.
        global_batch: documents of a step.
        num_gpus: in all; those beyond whole replicas idle.
        limit: tokens up to which a longest length is looked for.
    """
    longest = choice.longest(limit)
    fits = lengths <= longest
    if isinstance(choice, HybridContextParallel):
        steps_ms = [choice.step_ms(batch[batch <= longest]) for batch in _batches(lengths, global_batch)]
    else:
        replicas = max(1, num_gpus // choice.group_size)
        steps_ms = [_slowest(ms, replicas) for ms in _batches(times(choice, lengths), global_batch)]
    tokens = int(lengths[fits].sum())
    hours = num_gpus * sum(steps_ms) / MS_PER_HOUR
    return Outcome(
        choice.name,
        choice.kind,
        step_ms=sum(steps_ms) / len(steps_ms),
        gpu_hours_per_billion_tokens=hours * 1e9 / tokens if tokens else float("inf"),
        longest_length=longest,
        oom_documents=int((~fits).sum()),
        oom_tokens=int(lengths[~fits].sum()),
    )


def best(outcomes: Iterable[Outcome], kinds: Sequence[str]) -> Outcome | None:
    """The fastest of these kinds that completes all documents; None where none does."""
    able = [each for each in outcomes if each.kind in kinds and each.completes]
    return min(able, key=lambda each: each.step_ms, default=None)


def _batches(values: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _slowest(milliseconds: np.ndarray, replicas: int) -> float:
    """Longest first, each to the replica that is done first; NaN is left out."""
    loads = [0.0] * replicas
    for each in sorted(milliseconds[~np.isnan(milliseconds)], reverse=True):
        heapq.heapreplace(loads, loads[0] + float(each))
    return max(loads)
