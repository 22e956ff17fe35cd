"""A stage's plan laid out over the whole model: whatever lies apart there, each stage gets what was planned for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.pairs import PairCosts
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.runtime.decision import PlannedByLength

CLUSTER = Path(__file__).parents[2] / "configs" / "clusters" / "cpu-2core.yaml"
LENGTH, RANKS = 4096, 2


@pytest.fixture(scope="module")
def costs():
    shape = ModelShape(64, 8, 4, 256, 512, dtype="fp32")
    return estimate(shape, Cluster.from_yaml(CLUSTER), RANKS)


def _tight(source, num_layers):
    """A planner whose budget lets about half of the layers have the fastest option."""
    fastest = Planner(source, num_layers, 2**50, with_head=False).plan(LENGTH).predicted_bytes
    smallest = Planner(source, num_layers, 1, with_head=False).plan(LENGTH).predicted_bytes
    return Planner(source, num_layers, (fastest + smallest) // 2, with_head=False)


@pytest.mark.parametrize(("stages", "chunks", "positions"), [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 4, 2), (3, 2, 2)])
def test_every_stage_gets_the_plan_of_a_stage(costs, stages, chunks, positions):
    planner = _tight(costs, 4)
    planned = planner.plan(LENGTH).options
    assert len(set(planned)) > 1, "a plan of one option would prove nothing"
    decider = PlannedByLength(planner, costs, stages, LENGTH, 0, chunks, positions)
    whole = decider.decide(LENGTH).options
    assert len(whole) == 4 * stages * positions
    length = len(whole) // (stages * chunks)
    for stage in range(stages):
        own = [whole[(c * stages + stage) * length : (c * stages + stage + 1) * length] for c in range(chunks)]
        assert sum(own, ()) == tuple(option for option in planned for _ in range(positions))


def test_a_pair_that_is_recomputed_keeps_two_inputs(costs):
    pairs = PairCosts(costs)
    one_input = LENGTH // RANKS * 64 * 4
    assert pairs.options == costs.options and len(costs.options) > 10
    for option in costs.options:
        layer, pair = costs.predict(option, LENGTH), pairs.predict(option, LENGTH)
        assert pair.saved_bytes - layer.saved_bytes == (one_input if option.endswith("+full") else 0)
        assert (pair.milliseconds, pair.workspace_bytes) == (layer.milliseconds, layer.workspace_bytes)
    for head in ("whole", "chunked"):
        assert pairs.predict_head(LENGTH, head) == costs.predict_head(LENGTH, head)
    assert Planner(pairs, 4, 2**40).heads == ("whole", "chunked")
