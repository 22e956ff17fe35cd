"""Curves from measured times, on times whose law is known."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise

import pytest

from paradyse_megatron.costmodel.curve import LONGEST, Curve
from paradyse_megatron.costmodel.fit import WANDERS, fit_times, likeliest, monotone, noise
from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.costmodel.validation import extrapolated

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
    assert all(low <= high for low, high in pairwise(map(curve, range(1, 20_000, 61))))
    assert curve(1) > 0 and curve(LONGEST) < float("inf")


@pytest.mark.parametrize("seed", range(5))
def test_extrapolates_four_times(seed):
    fitted, tested = extrapolated(measured(0.03, seed))
    assert max(fitted) * 4 <= max(tested) and tested
    curve = fit_times(fitted)
    assert all(abs(curve(n) / statistics.median(samples) - 1) < 0.2 for n, samples in tested.items())


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_single_points_is_not_believed(seed):
    """A curve that is right but for a factor of 2: neighbours share it, so the mean of points is nearer than each."""
    times = measured(0.1, seed)
    curve = fit_times(times, Curve((Polynomial(1.5, 0.005, 1e-6),)))
    medians = {n: sorted(samples)[2] for n, samples in times.items()}
    off = sum((medians[n] / law(n) - 1) ** 2 for n in LENGTHS)
    assert sum((curve(n) / law(n) - 1) ** 2 for n in LENGTHS) < 0.8 * off


def test_what_is_measured_well_outweighs_the_description():
    """A machine whose description has attention three times too fast."""
    curve = fit_times(measured(0.02, 1), Curve((Polynomial(3, 0.01, 2e-6 / 3),)))
    assert all(curve(n) == pytest.approx(law(n), rel=0.02) for n in LENGTHS)


def test_between_points_the_curve_has_the_shape_of_what_is_expected():
    """Joined by a power of the length, 4,096 tokens would come out a third too slow."""
    curve = fit_times({n: [2 * law(n)] * 3 for n in (128, 16_384)}, Curve((Polynomial(3, 0.01, 2e-6),)))
    assert max(abs(curve(n) / (2 * law(n)) - 1) for n in range(128, 16_384, 7)) < 0.01


def test_the_likeliest_course_of_a_ratio():
    """Two points an octave apart, of variances e^2 and of a walk w^2: each gives way by its share of their distance."""
    apart = likeliest([100, 200], [0.0, 1.0], [WANDERS, WANDERS])
    assert apart == pytest.approx([1 / 3, 2 / 3])
    assert likeliest([100, 200], [0.0, 1.0], [1e-6, WANDERS]) == pytest.approx([0, 0.5], abs=1e-6)
    assert likeliest([100, 400], [0.0, 1.0], [WANDERS, WANDERS]) == pytest.approx([1 / 4, 3 / 4])  # two octaves
    assert likeliest([100], [0.7], [0.1]) == pytest.approx([0.7])


def test_one_length_is_enough_to_go_on():
    curve = fit_times({512: [4.0, 4.2, 3.8]})
    assert curve.fault() is None and curve(512) == pytest.approx(4.0)


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
