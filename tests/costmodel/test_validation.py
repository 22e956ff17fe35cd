"""Which points are held out, and that fits beat the paper's forest on them."""

from __future__ import annotations

import random

import pytest

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.validation import (
    beyond,
    by_fits_beyond,
    by_fits_inside,
    by_forest,
    extrapolated,
    held_out,
    inside,
    mean_error,
    points,
)

LENGTHS = [2**k for k in range(7, 14)] + [181, 362, 724, 1448, 2896, 5792]


@pytest.fixture(scope="module")
def traced():
    cluster = Cluster.from_yaml(shipped("clusters", "cpu-2core"))
    return estimate(ModelShape.from_yaml(shipped("models", "tiny")), cluster, 2, options=["tp_sp", "ulysses", "ring"])


def measured(traced, spread=0.0, seed=0):
    draw = random.Random(seed)
    return {
        option: {
            n: [3 * traced.predict(option, n).milliseconds * (1 + draw.gauss(0, spread)) for _ in range(5)]
            for n in LENGTHS
        }
        for option in traced.options
    }


@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[1:]])
def test_held_out_lengths_are_inside_and_apart(lengths):
    fitted, tested = held_out({n: [1.0] for n in lengths})
    assert set(fitted) | set(tested) == set(lengths) and not set(fitted) & set(tested)
    assert min(fitted) < min(tested) and max(tested) < max(fitted) and len(tested) >= 5


def test_beyond_is_four_times_what_is_fitted():
    fitted, tested = extrapolated({n: [1.0] for n in LENGTHS})
    assert max(fitted) == 2048 and set(tested) == {8192}
    assert extrapolated({n: [1.0] for n in (128, 256, 512)}) == ({}, {})
    assert beyond({"tp_sp": {n: [1.0] for n in (128, 256, 512)}}) == {}
    assert inside({"tp_sp": {n: [1.0] for n in (128, 256, 512)}}) == {}


@pytest.mark.parametrize("seed", range(3))
def test_a_forest_is_worse_outside_and_no_better_inside(traced, seed):
    times = measured(traced, 0.02, seed)
    split = inside(times)
    mine = mean_error(list(points(split, by_fits_inside(traced, split))))
    assert mine < 0.03 and mine < mean_error(list(points(split, by_forest(split))))
    split = beyond(times)
    mine = mean_error(list(points(split, by_fits_beyond(traced, split, times))))
    assert mine < 0.05 and 5 * mine < mean_error(list(points(split, by_forest(split))))


def test_what_is_beyond_is_told_to_no_fit(traced):
    """Not even of other options: where all take 10 times longer beyond, the prediction does not know it."""
    times = measured(traced)
    jumped = {o: {n: [ms * (10 if n > 2048 else 1) for ms in of[n]] for n in of} for o, of in times.items()}
    calm, wild = (
        {point.target: point.predicted for point in points(split, by_fits_beyond(traced, split, of))}
        for of in (times, jumped)
        for split in [beyond(of)]
    )
    assert calm == pytest.approx(wild)
