"""Plans of whole pipelines laid out over the model: each stage's layers, wherever they lie, follow its plan."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from paradyse_megatron.bench.schedule import schedule_peak
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.pairs import pair_costs
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.integration.pipelines import costs_by_kind, plan_pipeline
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.stages import PipelinePlanner, in_flight, layers_of_stage
from paradyse_megatron.runtime.decision import PlannedByLength

CLUSTER = Path(__file__).parents[2] / "configs" / "clusters" / "cpu-2core.yaml"
LENGTH, RANKS = 4096, 2
SHAPE = ModelShape(64, 8, 4, 256, 512, dtype="fp32")
MIXED = replace(SHAPE, num_experts=4, experts_per_token=2, expert_layer_interval=2)


@pytest.fixture(scope="module")
def costs():
    return estimate(SHAPE, Cluster.from_yaml(CLUSTER), RANKS)


@pytest.fixture(scope="module")
def mixed_costs(costs):
    """Of experts everything is twice as much, and they keep their own MLP."""
    of_experts = {
        option: replace(each, milliseconds=pair_costs(costs).costs["dense"][option].milliseconds)
        for option, each in costs.costs["dense"].items()
        if "/" not in option
    }
    return replace(costs, shape=MIXED, costs={"moe": of_experts, "dense": costs.costs["dense"]})


def _tight(source, num_layers, share):
    """A planner whose budget lets some of the layers have the fastest option."""
    fastest = Planner(source, num_layers, 2**50, with_head=False).plan(LENGTH).predicted_bytes
    smallest = Planner(source, num_layers, 1, with_head=False).plan(LENGTH).predicted_bytes
    return Planner(source, num_layers, int(smallest + share * (fastest - smallest)), with_head=False)


@pytest.mark.parametrize(("stages", "chunks", "positions"), [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 4, 2), (3, 2, 2)])
def test_every_stage_gets_its_plan_and_all_know_all_of_it(costs, stages, chunks, positions):
    planners = [_tight(costs, 4, 0.3 + 0.15 * stage) for stage in range(stages)]
    planned = [planner.plan(LENGTH).options for planner in planners]
    assert all(len(set(options)) > 1 for options in planned) and len(set(planned)) == stages
    wholes = set()
    for own_stage in range(stages):
        pipeline = PipelinePlanner(planners, chunks, lambda own_stage=own_stage: own_stage)
        whole = PlannedByLength(pipeline, costs, LENGTH, positions).decide(LENGTH)
        assert whole.predicted_bytes == planners[own_stage].plan(LENGTH).predicted_bytes
        wholes.add(whole.options)
    (options,) = wholes
    assert len(options) == 4 * stages * positions
    length = len(options) // (stages * chunks)
    for stage in range(stages):
        own = [options[(c * stages + stage) * length : (c * stages + stage + 1) * length] for c in range(chunks)]
        assert sum(own, ()) == tuple(option for option in planned[stage] for _ in range(positions))


def test_layers_are_dealt_to_stages_and_chunks():
    assert layers_of_stage(1, 2, 1, 8) == (4, 5, 6, 7)
    assert [layers_of_stage(stage, 2, 2, 8) for stage in range(2)] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    with pytest.raises(ValueError, match="9 layers cannot be dealt evenly to 2 pipeline stages with 2 chunks"):
        layers_of_stage(0, 2, 2, 9)


@pytest.mark.parametrize(("stages", "chunks"), [(2, 1), (2, 2), (4, 1), (4, 2), (4, 3), (3, 4)])
def test_micro_batches_in_flight_are_those_of_the_schedule(stages, chunks):
    """Runs each stage's order of forwards and backwards of chunks, and watches how many are on their way."""
    for stage in range(stages):
        ahead = stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages
        most = on_their_way = 0
        for step in [1] * ahead + [1, -1] * 20:
            on_their_way += step
            most = max(most, on_their_way)
        assert in_flight(stage, stages, chunks) == -(-most // chunks)


def _pipeline(costs, shape, budget_bytes, stages=4, chunks=1, options=None):
    args = Namespace(
        tensor_model_parallel_size=RANKS,
        pipeline_model_parallel_size=stages,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
        paradyse_hysteresis=0.05,
    )
    known = dict.fromkeys(option for kind in costs.kinds for option in costs.options_of(kind))
    return plan_pipeline(args, shape, costs_by_kind(costs), budget_bytes, list(options or known), chunked_head=True)


@pytest.mark.parametrize("chunks", [1, 2])
def test_stages_differ_in_memory_and_each_keeps_to_its_own(mixed_costs, chunks):
    """Kinds of layers, static bytes, micro-batches in flight and the head are each stage's own."""
    stages = 2
    generous = _pipeline(mixed_costs, MIXED, 2**50, stages, chunks)
    static = [stage.static_bytes for stage in generous.stages]
    assert len(set(static)) == 2 and sum(static) >= MIXED.static_bytes(RANKS)
    roomy, seen = [each.plan(LENGTH).predicted_bytes for each in generous.stages], set()
    budget = int(0.6 * max(roomy))
    pipeline = _pipeline(mixed_costs, MIXED, budget, stages, chunks)
    whole = pipeline.stages[0], pipeline.stages[1]
    for stage, planner in enumerate(whole):
        layers, plan = layers_of_stage(stage, stages, chunks, 8), planner.plan(LENGTH)
        kinds = [MIXED.layer_kinds[layer] for layer in layers]
        found = [mixed_costs.predict(o, LENGTH, kind) for o, kind in zip(plan.options, kinds, strict=True)]
        head = mixed_costs.predict_head(LENGTH, plan.head).saved_bytes if stage == 1 else 0
        peak = schedule_peak(found, head, in_flight(stage, stages, chunks)) + planner.static_bytes
        assert plan.fits and peak == plan.predicted_bytes <= budget
        assert all(o in mixed_costs.options_of(kind) for o, kind in zip(plan.options, kinds, strict=True))
        seen.add(plan.options)
    assert len(seen) == 2, "the first stage holds more micro-batches, so it must give up more time"


def test_a_stage_without_a_kind_leaves_out_its_options(mixed_costs):
    """Layers of two kinds in turn, one a stage: only some stages can follow ring/gathered."""
    shape = replace(MIXED, num_layers=2)
    pipeline = _pipeline(replace(mixed_costs, shape=shape), shape, 2**50, stages=2, options=["tp_sp", "tp_sp/gathered"])
    assert [[str(option) for option in stage.options] for stage in pipeline.stages] == [
        ["tp_sp"],
        ["tp_sp", "tp_sp/gathered"],
    ]
    with pytest.raises(ValueError, match=r"no costs of 'upipe/streamed\+selective'"):
        _pipeline(replace(mixed_costs, shape=shape), shape, 2**50, stages=2, options=["upipe/streamed+selective"])


def test_a_pair_that_is_recomputed_keeps_two_inputs(costs):
    pairs = pair_costs(costs)
    one_input = LENGTH // RANKS * 64 * 4
    assert pairs.options == costs.options and len(costs.options) > 10
    for option in costs.options:
        layer, pair = costs.predict(option, LENGTH), pairs.predict(option, LENGTH)
        assert pair.saved_bytes - layer.saved_bytes == (one_input if option.endswith("+full") else 0)
        assert (pair.milliseconds, pair.workspace_bytes) == (layer.milliseconds, layer.workspace_bytes)
    for head in ("whole", "chunked"):
        assert pairs.predict_head(LENGTH, head) == costs.predict_head(LENGTH, head)
    assert Planner(pairs, 4, 2**40).heads == ("whole", "chunked")
