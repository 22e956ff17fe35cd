"""Curves from measured times, on times whose law is known."""

from __future__ import annotations

import random

import pytest

from paradyse_megatron.costmodel.curve import LONGEST
from paradyse_megatron.costmodel.fit import (
    FASTEST,
    corrected,
    extrapolated,
    fit_times,
    held_out,
    is_monotone,
    mean_error,
    monotone,
    noise,
    random_forest,
)

LENGTHS = [2**k for k in range(7, 14)] + [181, 362, 724, 1448, 2896, 5792]


def law(length: int) -> float:
    return 3 + 0.01 * length + 2e-6 * length**2


def measured(spread: float = 0.0, seed: int = 0, lengths=LENGTHS) -> dict[int, list[float]]:
    draw = random.Random(seed)
    return {n: [law(n) * (1 + draw.gauss(0, spread)) for _ in range(5)] for n in lengths}


def test_meets_points_between_them_and_outside():
    curve = fit_times(measured())
    assert all(curve(n) == pytest.approx(law(n)) for n in LENGTHS)
    assert max(abs(curve(n) / law(n) - 1) for n in range(128, 8192, 7)) < 0.02
    assert all(curve(n) == pytest.approx(law(n), rel=1e-3) for n in (1, 50, 20_000, 1_000_000))


@pytest.mark.parametrize("seed", range(5))
def test_noise_breaks_neither_order_nor_continuity(seed):
    curve = fit_times(measured(0.15, seed))
    assert curve.fault() is None  # positive, monotone, continuous, finite
    assert is_monotone([curve(n) for n in range(1, 20_000, 61)])
    assert curve(1) > 0 and curve(LONGEST) < float("inf")


@pytest.mark.parametrize("seed", range(5))
def test_extrapolates_four_times(seed):
    fitted, tested = extrapolated(measured(0.03, seed))
    assert max(fitted) * 4 <= max(tested) and tested
    assert mean_error(fit_times(fitted), tested) < 0.2


@pytest.mark.parametrize("seed", range(5))
def test_work_too_small_to_be_measured_is_not_forgotten_far_away(seed):
    """At 512 tokens the square is 2 % of the time, less than the noise; at 131,072 it is 93 %."""

    def busy(length):
        return 20 + 0.02 * length + 2e-6 * length**2

    draw = random.Random(seed)
    times = {n: [busy(n) * (1 + draw.gauss(0, 0.1)) for _ in range(3)] for n in (128, 181, 256, 362, 512)}
    curve = fit_times(times, lambda n: 0.5 * (busy(n) - 20))
    assert curve.fault() is None
    assert all(0.5 < curve(n) / busy(n) < 2 for n in (2048, 8192, 32_768, 131_072))


def test_what_is_measured_well_outweighs_the_description():
    """A machine whose description has attention three times too fast."""
    curve = fit_times(measured(0.02, 1), lambda n: 0.01 * n + 2e-6 / 3 * n**2)
    assert all(curve(n) == pytest.approx(law(n), rel=0.15) for n in (16_384, 32_768))


def test_the_correction_is_overhead_and_speed():
    works = [1.0, 2.0, 5.0, 40.0]
    assert corrected(works, [2 + 3 * work for work in works]) == pytest.approx((2, 3))
    assert corrected(works, [5.0, 5.0, 5.0, 5.0])[1] == FASTEST  # noise alone does not make work free


def test_a_forest_is_worse_outside_and_no_better_inside():
    times = {"a": measured(0.02, 1), "b": {n: [2 * t for t in ts] for n, ts in measured(0.02, 2).items()}}
    inside = {name: held_out(of) for name, of in times.items()}
    forest = random_forest({name: fitted for name, (fitted, _) in inside.items()})
    for name, (fitted, tested) in inside.items():
        assert mean_error(fit_times(fitted), tested) < mean_error(lambda n, name=name: forest(name, n), tested)
    outside = {name: extrapolated(of) for name, of in times.items()}
    forest = random_forest({name: fitted for name, (fitted, _) in outside.items()})
    for name, (fitted, tested) in outside.items():
        assert 5 * mean_error(fit_times(fitted), tested) < mean_error(lambda n, name=name: forest(name, n), tested)


def test_one_length_is_enough_to_go_on():
    curve = fit_times({512: [4.0, 4.2, 3.8]})
    assert curve.fault() is None and curve(512) == pytest.approx(4.0)


def test_held_out_lengths_are_inside_and_apart():
    fitted, tested = held_out(measured())
    assert set(fitted) | set(tested) == set(LENGTHS) and not set(fitted) & set(tested)
    assert min(fitted) < min(tested) and max(tested) < max(fitted) and len(tested) >= 5


def test_noise_is_that_of_repeated_measurements():
    assert noise(measured()) == pytest.approx(0)
    assert 0.03 < noise(measured(0.1, 3)) < 0.15
    assert noise({5: [1.0]}) is None


def test_nothing_measured_is_refused():
    with pytest.raises(ValueError, match="at least one measured length"):
        fit_times({})


def test_monotone_moves_as_little_as_possible():
    assert monotone([1.0, 4.0, 2.0, 8.0], [1, 1, 1, 1]) == pytest.approx([1, 8**0.5, 8**0.5, 8])
    assert monotone([1.0, 2.0, 4.0], [1, 5, 1]) == pytest.approx([1, 2, 4])
