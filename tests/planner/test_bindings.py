"""What the C++ search is given is checked before it is used as an index: a sentence, never a crash."""

import math
from itertools import pairwise

import pytest

from paradyse_megatron.planner import native
from tests.planner.backends import needs_cpp

pytestmark = needs_cpp
COST, HEAD = (1.0, 100, 50, 0), (1.0, 10, 0)
FLAT = (((1.0, 0.0, 0.0),), (), ())


def stage(layers=(0, 0), num_kinds=1):
    return native._native.Stage(layers, num_kinds, 1000, 1)


def costs(kinds=((COST,),), heads=(HEAD,)):
    return native._native.Costs(kinds, heads)


def table(kinds=(((FLAT,) * 4,),), heads=((FLAT,) * 3,)):
    return native._native.CurveTable(kinds, heads)


def problem(kinds=((COST,),), layers=(0, 0)):
    return native._native.Problem(kinds, layers, 1000, 0, 1, 0)


def pointed(*lengths):
    return (((1.0, 0.0, 0.0),), tuple((length, 1.0) for length in lengths), ((1.0, 0.0, 0.0),))


def test_what_goes_together_is_decided():
    for found in (costs(), table().at(512)):
        head, choice, *_ = stage().best(found)
        assert (head, choice) == (0, (0, 0)) and stage().some_fits(found)
        assert stage().weigh(found, 0, choice) == stage().best(found)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: stage((0, 1), 1), "kind 1, which has no costs"),
        (lambda: stage((-1,), 1), "kind -1, which has no costs"),
        (lambda: stage(()), "at least one layer"),
        (lambda: stage((0, 1), 2).best(costs()), "layers of 2 kinds, but there are costs of 1"),
        (lambda: stage((0, 1), 2).some_fits(costs()), "layers of 2 kinds, but there are costs of 1"),
        (lambda: stage((0, 1), 2).best(table().at(512)), "layers of 2 kinds, but there are costs of 1"),
        (lambda: stage().weigh(costs(), 1, (0, 0)), "no head 1, but 1 from 0"),
        (lambda: stage().weigh(costs(), -1, (0, 0)), "no head -1, but 1 from 0"),
        (lambda: stage().weigh(costs(), 0, (0, 1)), "Layer 1 has no such option"),
        (lambda: stage().weigh(costs(), 0, (-1, 0)), "Layer 0 has no such option"),
        (lambda: stage().weigh(costs(), 0, (0,)), "one option for each layer"),
        (lambda: costs(kinds=((COST,), ())), "no option to choose from"),
        (lambda: costs(kinds=(((1.0, 1, 1),),)), "four costs"),
        (lambda: costs(heads=()), "one or two ways to compute the head, but costs of 0"),
        (lambda: costs(heads=(HEAD,) * 3), "one or two ways to compute the head, but costs of 3"),
        (lambda: costs(kinds=(((math.nan, 1, 1, 0),),)), "milliseconds is infinite or no number"),
        (lambda: costs(heads=((math.inf, 1, 0),)), "milliseconds is infinite or no number"),
        (lambda: costs(kinds=(((1.0, -1, 1, 0),),)), "-1 bytes is negative"),
        (lambda: table(kinds=((),)), "no option to choose from"),
        (lambda: table(heads=()), "one or two ways to compute the head, but costs of 0"),
        (lambda: table(heads=((FLAT,) * 3,) * 3), "one or two ways to compute the head, but costs of 3"),
        (lambda: table(kinds=(((((), (), ()),) * 4,),)), "no terms"),
        (lambda: native._native.Curve(pointed(4, 4)), "do not ascend"),
        (lambda: native._native.Curve(pointed(1, 9, 4, 12)), "do not ascend"),
        (lambda: native._native.Curve((FLAT[0], ((4, 1.0),), ())), "points without terms below"),
        (lambda: problem(kinds=((),)), "no option to choose from"),
        (lambda: problem(layers=(0, 1)), "kind 1, which has no costs"),
        (lambda: problem().peak((0, 1)), "Layer 1 has no such option"),
        (lambda: problem().milliseconds((0,)), "one option for each layer"),
    ],
)
def test_what_does_not_is_a_sentence(ask, sentence):
    with pytest.raises(ValueError, match=sentence):
        ask()


def test_a_curve_of_infinite_time_is_refused_where_it_is_evaluated():
    steep = (((0.0, 0.0, 1e300),), (), ())
    found = table(kinds=(((steep, FLAT, FLAT, FLAT),),))
    with pytest.raises(ValueError, match="milliseconds is infinite"):
        found.at(10**9)


@pytest.mark.parametrize("lengths", list(pairwise((1, 2, 1000, 4096))))
def test_points_that_ascend_are_taken(lengths):
    assert native._native.Curve(pointed(*lengths))(lengths[0]) == 1.0
