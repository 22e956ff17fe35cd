"""What the race says: ratios between contenders, by length and in all. Arithmetic on its times."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from paradyse_megatron.bench.contenders import AGAIN, DYNAMIC, DYNAMIC_LIMITED, RANDOM, STOCK

SPECIAL = (STOCK, DYNAMIC, DYNAMIC_LIMITED, RANDOM)
BUCKETS = (512, 1024, 2048, 4096, 8192, 16384, 32768)


@dataclass(frozen=True)
class Verdict:
    """Of one interconnect.

    Attributes:
        lengths: real tokens of each document.
        times: milliseconds of each contender on each document.
        reach: the longest length that a contender trained within the memory limit; 0 for none.
        predicted: milliseconds that the cost model says for all documents together, by contender.
        untried: static configurations for whose reach there was no time; taken to train every document.
    """

    lengths: Sequence[int]
    times: Mapping[str, Sequence[float]]
    reach: Mapping[str, int]
    predicted: Mapping[str, float]
    untried: Sequence[str] = ()

    KEYS: ClassVar[tuple[str, ...]] = (
        "speedup_over_best_static",
        "speedup_over_best_static_unlimited",
        "speedup_over_stock",
        "worst_regret_at_any_length",
        "noise_floor",
        "longest_length_over_tp_sp",
        "longest_length_over_tp_sp_full",
    )

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON."""
        return {
            "speedup_over_best_static": self._within_limit(),
            "speedup_over_best_static_unlimited": self._over(self.statics(), DYNAMIC),
            "speedup_over_stock": self.total(STOCK) / self.total(DYNAMIC),
            "speedup_over_random": self.total(RANDOM) / self.total(DYNAMIC),
            "worst_regret_at_any_length": max(self.regret_by_bucket().values()),
            "noise_floor": self.noise_floor(),
            "longest_length_over_tp_sp": self._reach_ratio("tp_sp"),
            "longest_length_over_tp_sp_full": self._reach_ratio("tp_sp+full"),
            "completing": self.completing(),
            "untried_within_limit": list(self.untried),
            "best_static": min(self.completing(), key=self.total, default=None),
            "best_static_unlimited": min(self.statics(), key=self.total),
            "regret_by_length": self.regret_by_bucket(),
            "tokens_per_second": {name: 1000 * sum(self.lengths) / self.total(name) for name in self.times},
            "milliseconds_by_length": {name: self.by_bucket(name) for name in self.times},
            "longest_trained_within_limit": dict(self.reach),
            "predicted_over_measured": {name: self.predicted[name] / self.total(name) for name in self.times},
            "milliseconds": {name: list(times) for name, times in self.times.items()},
        }

    def statics(self) -> list[str]:
        """Static configurations; the repetition of one is none of its own."""
        return [name for name in self.times if name not in SPECIAL and not name.endswith(AGAIN)]

    def completing(self) -> list[str]:
        """Static configurations that trained the longest document within the limit, and untried ones."""
        longest = max(self.lengths)
        return [name for name in self.statics() if name in self.untried or self.reach.get(name, 0) >= longest]

    def total(self, name: str) -> float:
        """Milliseconds of all documents."""
        return sum(self.times[name])

    def _within_limit(self) -> float | None:
        """None where the plan by length did not train every document within the limit itself."""
        if self.reach.get(DYNAMIC_LIMITED, 0) < max(self.lengths):
            return None
        return self._over(self.completing(), DYNAMIC_LIMITED)

    def _over(self, statics: Sequence[str], dynamic: str) -> float | None:
        """None where no static configuration is there to compare with."""
        best = min(map(self.total, statics), default=None)
        return None if best is None else best / self.total(dynamic)

    def _reach_ratio(self, static: str) -> float | None:
        """None where the static one trains nothing, or where there was no time to try both."""
        mine, theirs = self.reach.get(DYNAMIC_LIMITED), self.reach.get(static)
        return mine / theirs if mine is not None and theirs else None

    def by_bucket(self, name: str) -> dict[str, float]:
        """Milliseconds summed over the documents up to each length of `BUCKETS` (and above the one before)."""
        return {bucket: sum(self.times[name][i] for i in places) for bucket, places in self._buckets().items()}

    def regret_by_bucket(self) -> dict[str, float]:
        """How much longer the dynamic plan takes than the static configuration that is best there, as a share."""
        best = {bucket: min(self.by_bucket(name)[bucket] for name in self.statics()) for bucket in self._buckets()}
        return {bucket: time / best[bucket] - 1 for bucket, time in self.by_bucket(DYNAMIC).items()}

    def noise_floor(self) -> float:
        """How far apart two runs of the same configuration are on a document, as a share, in the median."""
        pairs = [
            (self.times[name], self.times[name.removesuffix(AGAIN)]) for name in self.times if name.endswith(AGAIN)
        ]
        return statistics.median(abs(a / b - 1) for again, first in pairs for a, b in zip(again, first, strict=True))

    def _buckets(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for bucket, below in zip(BUCKETS, (0, *BUCKETS), strict=False):
            places = [i for i, length in enumerate(self.lengths) if below < length <= bucket]
            if places:
                found[f"up to {bucket}"] = places
        return found
