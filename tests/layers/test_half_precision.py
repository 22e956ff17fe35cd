"""bf16, 16 layers: a plan costs no precision, and neither do more ranks."""

from __future__ import annotations

from tests.layers.jobs import HALF_PRECISION_PLANS


def test_no_plan_is_much_further_from_fp64_than_plain_bf16(alone, findings):
    """At most 1.5 times the distance of the unsharded bf16 run, for the losses and each kind of parameter."""
    plain = alone["half precision"][1]
    assert len(plain) > 10 and all(1e-3 < distance < 0.2 for distance in plain.values()), plain
    for num_ranks, plans in HALF_PRECISION_PLANS.items():
        found = findings(num_ranks)["half precision"][0]
        assert list(found) == plans
        for plan, distances in found.items():
            ratios = {kind: distances[kind] / distance for kind, distance in plain.items()}
            assert max(ratios.values()) <= 1.5, (num_ranks, plan, ratios)


def test_the_error_does_not_grow_with_ranks(findings):
    """From two ranks to eight, for each plan that both run."""
    few, many = (findings(num_ranks)["half precision"][0] for num_ranks in (2, 8))
    for plan in many:
        for kind, distance in many[plan].items():
            assert distance <= 1.2 * few[plan][kind], (plan, kind)
