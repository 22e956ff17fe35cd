"""bf16, 16 layers: a plan costs no precision, and neither do more ranks."""

from __future__ import annotations

import math

from tests.layers.jobs import HALF_PRECISION_PLANS


def test_no_plan_is_much_further_from_fp64_than_plain_bf16(alone, findings):
    """At most 1.5 times the distance of the unsharded bf16 run: the losses, each kind of matrix, and all together."""
    plain = alone["half precision"][1]
    assert len(plain) > 10 and all(1e-3 < distance < 0.2 for distance in plain.values()), plain
    assert sum(map(is_telling, plain)) == 7
    for num_ranks, plans in HALF_PRECISION_PLANS.items():
        found = findings(num_ranks)["half precision"][0]
        assert list(found) == plans
        for plan, distances in found.items():
            ratios = {kind: distances[kind] / distance for kind, distance in plain.items() if is_telling(kind)}
            ratios["together"] = together(distances) / together(plain)
            assert max(ratios.values()) <= 1.5, (num_ranks, plan, ratios)


def test_the_error_does_not_grow_with_ranks(findings):
    """From two ranks to eight, for each plan that both run."""
    few, many = (findings(num_ranks)["half precision"][0] for num_ranks in (2, 8))
    for plan, distances in many.items():
        assert together(distances) <= 1.2 * together(few[plan]), plan


def is_telling(kind: str) -> bool:
    """Alone: the losses and matrices. Norms of q and k have four numbers a layer here, and vary twofold by chance."""
    return kind == "losses" or ("linear" in kind and kind.endswith("weight")) or kind.startswith(("emb", "output"))


def together(distances: dict[str, float]) -> float:
    """Over all kinds, each counting alike, so that small ones do not hide behind large ones."""
    return math.sqrt(sum(distance**2 for distance in distances.values()) / len(distances))
