"""A described machine corrected by points of several options, on machines whose true factors are known."""

from __future__ import annotations

import random

import pytest

from paradyse_megatron.costmodel.calibration import FASTEST, Calibration, calibrate, corrected
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.shape import ModelShape

OPTIONS = ["tp_sp", "tp_sp+full", "ulysses", "ulysses/tp_sp", "ring", "metp", "metp+full"]
TRUE = Calibration(overhead_ms=4.0, constant=2.5, per_token=1.5, attention=2.0, megatron_attention=3.0)
OCTAVES = [128, 256, 512, 1024, 2048, 4096]


@pytest.fixture(scope="module")
def described():
    cluster = Cluster.from_yaml(shipped("clusters", "cpu-2core"))
    costs = estimate(ModelShape.from_yaml(shipped("models", "tiny")), cluster, 2, options=OPTIONS)
    return {option: costs.costs["dense"][option].milliseconds for option in OPTIONS}


def measured(described, lengths, spread=0.0, seed=0, true=TRUE):
    draw = random.Random(seed)
    return {
        option: {n: [true.curve(option, curve)(n) * (1 + draw.gauss(0, spread)) for _ in range(3)] for n in lengths}
        for option, curve in described.items()
    }


def test_factors_are_found(described):
    found = calibrate(described, measured(described, OCTAVES))
    assert found.constant == pytest.approx(2.5, rel=0.15) and found.per_token == pytest.approx(1.5, rel=0.25)
    assert found.attention == pytest.approx(2, rel=0.15) and found.megatron_attention == pytest.approx(3, rel=0.15)


def test_a_machine_as_described_is_left_alone(described):
    found = calibrate(described, measured(described, OCTAVES, true=Calibration()))
    assert [found.constant, found.per_token, found.attention, found.megatron_attention] == pytest.approx(
        [1] * 4, rel=1e-4
    )
    assert found.overhead_ms == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_points_of_all_options_tell_of_an_option_beyond_its_own(described, seed):
    """`ring` was measured up to 512 tokens, where attention is 6 % of its time; others up to 4,096."""
    times = measured(described, OCTAVES, 0.1, seed)
    times["ring"] = {n: times["ring"][n] for n in OCTAVES[:3]}
    found = calibrate(described, times).curve("ring", described["ring"])
    true = TRUE.curve("ring", described["ring"])
    assert all(found(n) == pytest.approx(true(n), rel=0.2) for n in (1024, 4096, 16_384, 131_072))


@pytest.mark.parametrize("seed", range(5))
def test_work_too_small_to_be_measured_is_not_forgotten_far_away(described, seed):
    """At 256 tokens attention is 1 % of the time, less than the noise; at 131,072 it is nearly all."""
    times = measured(described, (128, 256), 0.1, seed)
    found = calibrate(described, times)
    for option, curve in described.items():
        assert 1 / 3 < found.curve(option, curve)(131_072) / TRUE.curve(option, curve)(131_072) < 2


def test_without_points_the_machine_is_as_described(described):
    assert calibrate({}, {}) == Calibration()
    assert calibrate(described, {"ring": {}}) == Calibration()


def test_the_correction_is_overhead_and_speed():
    works = [1.0, 2.0, 5.0, 40.0]
    assert corrected(works, [2 + 3 * work for work in works]) == pytest.approx((2, 3))
    assert corrected(works, [5.0, 5.0, 5.0, 5.0])[1] == FASTEST  # noise alone does not make work free
