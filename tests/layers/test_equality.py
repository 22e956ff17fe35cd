"""Whatever the plan, loss and every gradient equal those of the unsharded stock model."""

from __future__ import annotations

import pytest

from paradyse_megatron.comm import executors
from tests.comm.emulated import COMPILER
from tests.layers.equality import CASES_OF_WINDOWS, FAMILY_NAMES
from tests.layers.jobs import EXCHANGING_PLANS, FAMILIES_ON, plans_of
from tests.layers.plans import usable_options

TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
"""Relative L2 per tensor: rounding of another order of summation, nothing else."""


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8])
def test_plans_match_the_unsharded_model(findings, num_ranks):
    expected = plans_of(num_ranks)
    found = findings(num_ranks)["equality"][0]
    assert len(found) == sum(len(set(plans)) for plans in expected.values()) >= 13
    wrong = {key: error for key, error in found.items() if not error <= TOLERANCE[key.split()[2]]}
    assert not wrong


@pytest.mark.parametrize("num_ranks", FAMILIES_ON)
def test_every_family_follows_every_option_that_it_can(num_ranks):
    """Of 7 x 3 x 3 options three are of a ring with selective recompute, and `metp` wants a head for each rank."""
    for family in FAMILIES_ON[num_ranks]:
        plans = [plans for key, plans in plans_of(num_ranks).items() if key.startswith(f"{family} ")]
        followed = {option for of_key in plans for plan in of_key for option in plan.split(",")}
        assert followed == set(usable_options(family, num_ranks))
        assert len(followed) in (63 - 3, 63 - 3 - 9, 63 - 3 - 9 - 3)


def test_plans_match_whichever_executor_converts_layouts(findings):
    """Other launches take the one chosen by itself, `host` where it is built; GPU kernels run on the CPU."""
    by_executor = findings(4)["executors"][0]
    assert by_executor.keys() >= {"torch"} | ({"cuda", "symm"} if COMPILER else set())
    assert ("host" in by_executor) == (executors.unavailable_reason("host") is None)
    for found in by_executor.values():
        assert len(found) == sum(map(len, EXCHANGING_PLANS.values())) == 6
        assert max(found.values()) <= TOLERANCE["float64"], found


def test_one_accumulation_window_may_mix_plans(findings):
    """Strategies and recompute modes; the first backward runs after the last forward."""
    found = findings(2)["windows"][0]
    assert len(found) == len(FAMILY_NAMES) * len(CASES_OF_WINDOWS)
    assert max(found.values()) <= TOLERANCE["float64"], found
