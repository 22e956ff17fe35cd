"""What training measures corrects predictions: the same on all ranks, within bounds, and blind to a clock's speed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.sources import find_sources
from paradyse_megatron.planner.stages import PipelinePlanner
from paradyse_megatron.runtime.decision import PlannedByLength
from paradyse_megatron.runtime.feedback import MAX_RESERVE, PlannedWithFeedback, corrected
from paradyse_megatron.runtime.trace import TraceLine
from tests.planner.backends import needs_cpp

CLUSTER = Path(__file__).parents[2] / "configs" / "clusters" / "cpu-2core.yaml"
LENGTH, LAYERS, STATIC_BYTES = 4096, 4, 10**6


@pytest.fixture(scope="module")
def costs():
    return estimate(ModelShape(64, LAYERS, 4, 256, 512, dtype="fp32"), Cluster.from_yaml(CLUSTER), 2)


def learner(costs, budget=2**40, stages=1):
    def make_planner(factors, budget_bytes):
        stage = Planner(corrected(costs, factors), LAYERS, budget_bytes, static_bytes=STATIC_BYTES)
        return PipelinePlanner([stage] * stages)

    planned = PlannedByLength(make_planner({}, budget), costs, LENGTH)
    return PlannedWithFeedback(planned, make_planner)


def line(plan, predicted_ms=10.0, measured_ms=10.0, predicted_bytes=1000, measured_bytes=900):
    return TraceLine(1, 0, 9, 12, plan, predicted_ms, measured_ms, predicted_bytes, measured_bytes, 1.0, None, 0)


def test_what_is_as_predicted_changes_nothing(costs):
    feedback = learner(costs)
    before = feedback.decide(LENGTH)
    assert not feedback.learn([feedback.observe([line("ring"), line("tp_sp")]), feedback.observe([])])
    assert feedback.decide(LENGTH) == before


def test_a_slow_option_is_given_up_and_the_factor_is_bounded(costs):
    feedback = learner(costs)
    chosen = feedback.decide(LENGTH).options[0]
    other = next(option for option in costs.options if option != chosen)
    for _ in range(60):
        slow = [line(chosen, measured_ms=1000.0), *[line(other)] * 2]
        feedback.learn([feedback.observe(slow)] * 2)
    factor = 2 ** (feedback.correction.steps[feedback._options.index(chosen)] / 64)
    assert factor == 2.0 and chosen not in feedback.decide(LENGTH).options
    assert f"{chosen} x2.00" in str(feedback) and feedback.correction.steps.count(0) >= len(costs.options) - 2


@needs_cpp
def test_corrected_costs_are_planned_by_in_cpp_with_the_same_plans_as_in_python(costs):
    factors = {option: 2 ** ((7 * number % 129 - 64) / 64) for number, option in enumerate(costs.options)}
    slower = corrected(costs, factors)
    for option, factor in factors.items():
        before, after = costs.predict(option, LENGTH), slower.predict(option, LENGTH)
        assert after.milliseconds == pytest.approx(factor * before.milliseconds, rel=1e-12)
        assert replace(after, milliseconds=before.milliseconds) == before
    assert find_sources(slower, LAYERS, None, None, with_head=True, chunked_head=True).curves() is not None
    budget = Planner(costs, LAYERS, 2**60).plan(LENGTH).predicted_bytes
    cpp, python = (Planner(slower, LAYERS, budget, backend=backend) for backend in ("cpp", "python"))
    plans = {length: cpp.plan(length) for length in range(100, LENGTH, 116)}
    assert all(repr(python.plan(length)) == repr(plan) for length, plan in plans.items())
    assert len(set(plans.values())) > 2 and set(plans.values()) != {
        Planner(costs, LAYERS, budget).plan(n) for n in plans
    }


def test_an_option_that_everyone_follows_teaches_nothing(costs):
    feedback = learner(costs)
    lines = [line("ring", measured_ms=ms) for ms in (500.0, 9.0, 10.0, 14.0)]
    assert not feedback.learn([feedback.observe(lines)] * 2)


@pytest.mark.parametrize("speed", [1e-6, 0.5, 1000.0, 1e9])
def test_a_clock_of_another_speed_teaches_nothing(costs, speed):
    skewed, right = learner(costs), learner(costs)
    lines = [line("ring", measured_ms=20.0), line("tp_sp"), line("tp_sp*2,ring*2", measured_ms=11.0)]
    faster = [replace(x, measured_ms=x.measured_ms * speed) for x in lines]
    assert right.learn([right.observe(lines)] * 2) and skewed.learn([skewed.observe(lines), skewed.observe(faster)])
    assert skewed.correction == right.correction


def test_broken_measurements_teach_nothing(costs):
    feedback = learner(costs)
    broken = [line("ring", measured_ms=value) for value in (0.0, -3.0, None, float("inf"), float("nan"))]
    assert not feedback.learn([feedback.observe([*broken, line("ring"), replace(line("tp_sp"), predicted_ms=None)])])


def test_memory_above_the_prediction_is_kept_free_within_bounds_and_stays_so(costs):
    enough = learner(costs).decide(LENGTH).predicted_bytes
    feedback = learner(costs, budget=enough)
    before = feedback.decide(LENGTH)
    feedback.learn([feedback.observe([]), feedback.observe([line("ring", measured_bytes=1000 + enough // 100)])])
    assert feedback.correction.reserve_bytes == enough // 100
    assert feedback.decide(LENGTH).predicted_bytes <= enough - enough // 100 < before.predicted_bytes
    feedback.learn([feedback.observe([line("ring")])])
    assert feedback.correction.reserve_bytes == enough // 100
    feedback.learn([feedback.observe([line("ring", measured_bytes=10**15)])])
    assert feedback.correction.reserve_bytes == int(MAX_RESERVE * (enough - STATIC_BYTES))


def test_what_fitted_before_is_never_refused(costs):
    least = Planner(costs, LAYERS, 1, static_bytes=STATIC_BYTES).plan(LENGTH).predicted_bytes
    feedback = learner(costs, budget=least, stages=2)
    feedback.learn([feedback.observe([line("ring", measured_bytes=10**15)])])
    plan = feedback.decide(LENGTH)
    assert plan.predicted_bytes == least and plan.fits and len(plan) == 2 * LAYERS
    assert feedback.longest_fitting(LENGTH) == LENGTH
    with pytest.raises(ValueError, match="No plan fits"):
        feedback.decide(2 * LENGTH)


def test_corrections_have_a_hash(costs):
    one, other = learner(costs), learner(costs)
    assert one.state() == other.state()
    other.learn([other.observe([line("ring", measured_bytes=2000)])])
    assert one.state() != other.state()
