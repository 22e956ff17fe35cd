"""Plans of whole pipelines: each stage within its own budget, under a schedule run event by event."""

import pytest

from paradyse_megatron.bench.schedule import schedule_peak
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.stages import PipelinePlanner, in_flight
from tests.planner.test_stacks import KINDS, MODELS

BUDGETS = (50_000_000, 40_000_000, 60_000_000)


def pipeline():
    return PipelinePlanner(
        [
            Planner(
                MODELS,
                len(KINDS),
                budget,
                layer_kinds=KINDS,
                microbatches_in_flight=in_flight(stage, 3),
                with_head=stage == 2,
            )
            for stage, budget in enumerate(BUDGETS)
        ]
    )


def test_each_stage_stays_within_its_budget_with_its_micro_batches():
    planner, seen = pipeline(), set()
    for length in range(500, 60_000, 1500):
        plan, peaks = planner.plan(length), []
        for stage, budget in enumerate(BUDGETS):
            options = plan.options[stage * len(KINDS) : (stage + 1) * len(KINDS)]
            costs = [MODELS[kind].predict(option, length) for kind, option in zip(KINDS, options, strict=True)]
            head = MODELS["moe"].predict_head(length, plan.head).saved_bytes if stage == 2 else 0
            peaks.append(schedule_peak(costs, head, 3 - stage))
            assert not plan.fits or peaks[-1] <= budget
        assert plan.predicted_bytes == max(peaks)
        seen.add((plan.fits, len({plan.options[i : i + 6] for i in (0, 6, 12)}) > 1))
    assert {(True, True), (False, True)} <= seen
    largest = planner.largest_length(60_000)
    assert planner.plan(largest).fits and not planner.plan(largest + 1).fits


def test_micro_batches_fall_from_stage_to_stage():
    assert [in_flight(stage, 4) for stage in range(4)] == [4, 3, 2, 1]
    with pytest.raises(ValueError, match="from 0 to 3, but it is 4"):
        in_flight(4, 4)
    with pytest.raises(ValueError, match="at least one stage"):
        PipelinePlanner([])
