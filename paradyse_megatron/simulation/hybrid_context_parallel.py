"""Megatron's length-dependent context parallelism (`--hybrid-context-parallel`, called dynamic in later versions).

Of the N/T ranks that are data or context parallel, each sequence of a global batch gets as few as hold it with at most
S tokens each (`--max-seqlen-per-dp-cp-rank`), rounded up to a power of two; a scheduler packs sequences into groups
that run one after the other with a barrier between them, so that ranks of a group have about equal work. Layers run
`tp_sp` with `p2p` at every length: how many ranks, not how a layer runs, follows the length.

The schedule is a function that the caller brings: `integration.balanced_cp` runs Megatron's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from paradyse_megatron.simulation.context_parallel import ContextParallel

Schedule = Callable[[tuple[int, ...], int, int], Sequence[Sequence[Sequence[int]]]]
"""(lengths of a global batch, ranks, most tokens of a rank): for each group and rank the indices of its sequences."""


@dataclass(frozen=True)
class HybridContextParallel:
    """One setting of it.

    Attributes:
        base: T, layers and budget; its own C does not matter.
        max_tokens_per_rank: S.
        schedule: see above.
    """

    base: ContextParallel
    max_tokens_per_rank: int
    schedule: Schedule
    _known_ms: dict[tuple[int, int], float] = field(default_factory=dict, compare=False, repr=False)

    kind = "megatron hybrid"

    @property
    def name(self) -> str:
        """Such as "TP2 hybrid CP 8192 +full"."""
        recompute = "" if self.base.option == "tp_sp" else " +full"
        return f"TP{self.base.tensor_ranks} hybrid CP {self.max_tokens_per_rank}{recompute}"

    @property
    def num_ranks(self) -> int:
        """N/T, a power of two at most."""
        return 1 << (self.base.network.num_gpus // self.base.tensor_ranks).bit_length() - 1

    def longest(self, limit: int) -> int:
        """The longest sequence that all ranks together can take: a rank's part was sized to fit."""
        return min(limit, self.max_tokens_per_rank * self.num_ranks)

    def step_ms(self, lengths: np.ndarray) -> float:
        """Time of a global batch: group after group, each as slow as its busiest rank."""
        total = 0.0
        for group in self.schedule(tuple(map(int, lengths)), self.num_ranks, self.max_tokens_per_rank):
            sharers = np.bincount([index for rank in group for index in rank], minlength=len(lengths))
            busy = (sum(self._milliseconds(int(lengths[i]), int(sharers[i])) for i in rank) for rank in group)
            total += max(busy)
        return total

    def _milliseconds(self, seq_length: int, context_ranks: int) -> float:
        key = seq_length, context_ranks
        if key not in self._known_ms:
            self._known_ms[key] = replace(self.base, context_ranks=context_ranks).milliseconds(seq_length)
        return self._known_ms[key]


def hybrid_choices(base: ContextParallel, schedule: Schedule, limit: int) -> list[HybridContextParallel]:
    """As many tokens a rank as fit, rounded down to a power of two, and a quarter of that: more ranks, better balanced.

    What a rank holds of a shared sequence needs no more than as many tokens of its own, but for keys and values that
    travel, so S is sized with two ranks.
    """
    longest = replace(base, context_ranks=2).longest(2 * limit) // 2
    if longest < 1:
        return []
    most = 1 << int(math.log2(longest))
    return [HybridContextParallel(base, tokens, schedule) for tokens in sorted({most, max(1, most // 4)})]
