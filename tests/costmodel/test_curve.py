"""Curves: through their points, monotone, continuous, exact for powers; and what is refused."""

import re

import pytest

from paradyse_megatron.costmodel.curve import Curve, simplified
from paradyse_megatron.costmodel.polynomial import Polynomial

SQUARE = Polynomial(per_token_squared=2.0)
MEASURED = Curve((SQUARE,), ((100, 20_000.0), (400, 320_000.0)), (Polynomial(20_000.0),))


def test_powers_are_exact_between_points_and_polynomials_hold_outside():
    assert MEASURED.fault() is None
    assert MEASURED(200) == pytest.approx(SQUARE(200), rel=1e-12)
    assert (MEASURED(100), MEASURED(400), MEASURED(50), MEASURED(800)) == (20_000, 320_000, 20_000, SQUARE(800))
    values = [MEASURED(length) for length in range(1, 1000)]
    assert values == sorted(values)


def test_the_largest_term_holds():
    curve = Curve((Polynomial(10.0), Polynomial(per_token=1.0)))
    assert (curve(3), curve(30)) == (10, 30) and curve.fault() is None


def test_terms_that_never_matter_are_left_out():
    low, flat, line = Polynomial(5.0, 0.5), Polynomial(10.0), Polynomial(0.0, 1.0)
    assert set(simplified([low, flat, line, flat, Polynomial(1.0, 1.0)])) == {flat, Polynomial(1.0, 1.0)}


@pytest.mark.parametrize(
    ("curve", "fault"),
    [
        (Curve(()), "no 'terms'"),
        (Curve((SQUARE,), ((10, 200.0),)), "terms_below"),
        (Curve((SQUARE,), ((10, 200.0), (9, 300.0)), (Polynomial(200.0),)), "not ascending, at 9 tokens"),
        (Curve((SQUARE,), ((10, 200.0), (20, 100.0)), (Polynomial(200.0),)), "not ascending, at 20"),
        (Curve((Polynomial(-1.0),)), "negative"),
        (Curve((Polynomial(1e6, -1.0),)), "falls before"),
        (Curve((SQUARE,), ((10, 200.0), (20, 900.0)), (Polynomial(200.0),)), "jumps at 20|falls before"),
        (Curve((SQUARE,), ((10, 300.0), (20, 800.0)), (Polynomial(200.0),)), "jumps at 10"),
        (Curve((Polynomial(per_token_squared=1e300),)), "not finite"),
    ],
)
def test_faults(curve, fault):
    assert re.search(fault, curve.fault())
