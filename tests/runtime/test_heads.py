"""The loss head of a micro-batch: decided by length, the same on all stages, part of what ranks agree on."""

from __future__ import annotations

from pathlib import Path

import pytest

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.stages import PipelinePlanner
from paradyse_megatron.runtime.decision import FixedPlan, PlannedByLength

CONFIGS = Path(__file__).parents[2] / "configs"
LONGEST = 131_072


@pytest.fixture(scope="module")
def costs():
    """Of Llama-3-8B on 8 ranks."""
    shape = ModelShape.from_yaml(CONFIGS / "models" / "llama-3-8b.yaml")
    return estimate(shape, Cluster.from_yaml(CONFIGS / "clusters" / "dgx-h100.yaml"), 8, ["ulysses", "ulysses+full"])


def planned(costs, chunked_head=True):
    stages = [
        Planner(
            costs, 16, 34 * 2**30, microbatches_in_flight=2 - stage, with_head=stage == 1, chunked_head=chunked_head
        )
        for stage in range(2)
    ]
    return PlannedByLength(PipelinePlanner(stages), costs, LONGEST)


def test_a_fixed_plan_is_chunked_above_the_bound_or_where_it_says_so():
    whole, chunked = Plan.parse("ring", 4), Plan.parse("ring;head=chunked", 4)
    bounded, unbounded = FixedPlan(whole, 2, 100), FixedPlan(whole, 2)
    assert bounded.decide(100) == whole == unbounded.decide(10**6)
    assert bounded.decide(104) == chunked == FixedPlan(chunked, 2).decide(4)
    assert bounded.describe() != unbounded.describe() != FixedPlan(chunked, 2).describe()


def test_all_stages_get_the_head_that_was_planned_for_the_last(costs):
    decider = planned(costs)
    short, long = decider.decide(4096), decider.decide(LONGEST)
    assert (short.head, long.head) == ("whole", "chunked") and len(short) == len(long) == 32
    stages = [stage.plan(LONGEST) for stage in decider.planner.stages]
    assert [stage.head for stage in stages] == ["whole", "chunked"] and long.fits
    assert long.predicted_bytes == max(stage.predicted_bytes for stage in stages)


def test_ranks_that_cost_or_allow_heads_differently_are_told_apart(costs):
    key = "costs of the loss head"
    assert len(planned(costs).describe()[key]) == 2 and len(planned(costs, chunked_head=False).describe()[key]) == 1
