"""The same documents under every choice, and how much of the result hangs on the speed of the links."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from paradyse_megatron.simulation.field import Candidate
from paradyse_megatron.simulation.outcome import Outcome, best, outcome

BANDWIDTHS = (0.7, 1.0, 1.3)
RIVALS = ("static", "megatron")
KINDS = ("dynamic", "static", "megatron", "megatron hybrid")
NEAR = 1.2
"""With other links only choices within this factor of the best of their kind are run again."""


@dataclass(frozen=True)
class Comparison:
    """Of all choices on the same documents.

    Attributes:
        outcomes: fastest first, those that do not complete all documents last.
        speedups: of the dynamic plan over rivals, None where no such rival completes the documents.
    """

    outcomes: tuple[Outcome, ...]
    speedups: dict[str, float | None]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "choices": [asdict(each) | {"completes": each.completes} for each in self.outcomes],
            **self.speedups,
        }


def compare(
    candidates: Iterable[Candidate], lengths: np.ndarray, global_batch: int, num_gpus: int, limit: int
) -> Comparison:
    """Run all documents under each candidate."""
    found = [outcome(each, lengths, global_batch, num_gpus, limit) for each in candidates]
    found.sort(key=lambda each: (not each.completes, each.step_ms))
    return Comparison(tuple(found), _speedups(found))


def sensitivity(
    make: Callable[[float], Iterable[Candidate]],
    usual: Comparison,
    run: Callable[[Iterable[Candidate]], Comparison],
) -> dict[str, dict[str, float | None]]:
    """Speed-ups by factor of every link's bandwidth.

    Args:
        make: the candidates for a factor.
        usual: the comparison at factor 1.
        run: `compare` with everything but the candidates given.
    """
    firsts = {kind: best(usual.outcomes, [kind]) for kind in KINDS}
    near = {
        each.name
        for each in usual.outcomes
        if (first := firsts[each.kind]) is not None and each.completes and each.step_ms <= NEAR * first.step_ms
    }
    return {
        f"{factor:g}": usual.speedups if factor == 1 else run(c for c in make(factor) if c.name in near).speedups
        for factor in BANDWIDTHS
    }


def _speedups(outcomes: list[Outcome]) -> dict[str, float | None]:
    mine = best(outcomes, ["dynamic"])

    def over(*kinds: str) -> float | None:
        rival = best(outcomes, kinds)
        return None if mine is None or rival is None else rival.step_ms / mine.step_ms

    return {
        "speedup_over_best_static": over(*RIVALS),
        "speedup_over_best_static_strategy": over("static"),
        "speedup_over_best_megatron_static": over("megatron"),
        "speedup_over_megatron_hybrid_cp": over("megatron hybrid"),
    }
