"""The searches in both languages: the greedy one against the exact one, and the exact one against trying everything."""

import dataclasses
import itertools
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paradyse_megatron.bench.problems import random_problem, random_problems
from paradyse_megatron.bench.schedule import schedule_peak, simulated_peak
from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.efficient import efficient_indices
from paradyse_megatron.planner.exact import exact_choice
from paradyse_megatron.planner.levels import levels
from paradyse_megatron.planner.problem import Problem
from paradyse_megatron.planner.search import greedy_choice
from tests.planner.backends import CPP, NAMES, PYTHON, SEARCHES, needs_cpp

MEAN_GAP, WORST_GAP = 0.005, 0.03  # greedy over exact; seen: 0 in all of 20,000


def all_choices(problem):
    return itertools.product(*(range(len(problem.kinds[kind])) for kind in problem.layers))


@pytest.mark.parametrize("searches", SEARCHES)
def test_exact_feasible_and_least_memory_against_trying_everything(searches):
    chooser = random.Random(1)
    num_fitting = 0
    for case in range(300):
        problem = random_problem(chooser, alike=bool(case % 2), max_layers=4)
        fitting = [choice for choice in all_choices(problem) if problem.fits(choice)]
        exact, least_saved = searches.exact_choice(problem), searches.least_saved_choice(problem)
        assert (exact is None) == (least_saved is None) == (not fitting)
        lowest = min(problem.peak_bytes(choice) for choice in all_choices(problem))
        assert problem.peak_bytes(searches.least_memory_choice(problem)) == lowest
        if fitting:
            num_fitting += 1
            assert problem.milliseconds(exact) == pytest.approx(min(map(problem.milliseconds, fitting)), rel=1e-12)
            saved = [sum(cost.saved_bytes for cost in problem.costs(choice)) for choice in fitting]
            assert sum(cost.saved_bytes for cost in problem.costs(least_saved)) == min(saved)
    assert 50 < num_fitting < 250


@pytest.mark.parametrize("searches", SEARCHES)
def test_greedy_fits_whenever_exact_does_and_is_nearly_as_fast(searches):
    gaps, num_hopeless, num_mixed = [], 0, 0
    for problem in random_problems(seed=2, num=900):
        exact, greedy = searches.exact_choice(problem), searches.greedy_choice(problem)
        assert (exact is None) == (greedy is None)
        if exact is None:
            num_hopeless += 1
            continue
        held = problem.head_bytes, problem.num_in_flight, problem.head_buffer_bytes
        peak = simulated_peak(problem.costs(greedy), *held)
        assert peak == searches.peak_bytes(problem, greedy) <= problem.budget_bytes
        assert peak == schedule_peak(problem.costs(greedy), *held)
        num_mixed += len({cost.buffer_bytes for cost in problem.costs(greedy)}) > 1
        gaps.append(problem.milliseconds(greedy) / problem.milliseconds(exact) - 1)
    assert len(gaps) > 300 and num_hopeless > 200 and num_mixed > 50
    assert min(gaps) > -1e-12
    assert statistics.mean(gaps) < MEAN_GAP and max(gaps) < WORST_GAP


@pytest.mark.parametrize("searches", SEARCHES)
@pytest.mark.parametrize(
    ("budget", "head", "head_buffer", "expected"),
    [
        (80, 0, 0, (0, 0)),  # 2 * 10 saved, 20 of its own, and the buffer of 40
        (79, 0, 0, (0, 1)),
        (77, 0, 0, (1, 1)),  # (0, 1): 10 + 12 saved, 16 of the second layer's own, and the first one's buffer
        (39, 0, 0, None),
        (77, 30, 30, (1, 1)),  # the head has made one of 30
        (69, 30, 30, None),
        (80, 60, 40, (0, 0)),  # the head has made it already: no reason to do without
        (79, 60, 40, None),
    ],
)
def test_a_buffer_is_there_beside_all_layers_once_one_needs_it(searches, budget, head, head_buffer, expected):
    gathering, other = Cost(1, 10, 60, 40), Cost(3, 12, 16, 0)
    problem = Problem.of([(gathering, other)] * 2, budget, head, 1, head_buffer)
    fitting = [choice for choice in all_choices(problem) if problem.fits(choice)]
    assert fitting == [] if expected is None else expected in fitting
    assert searches.greedy_choice(problem) == searches.exact_choice(problem) == expected


@needs_cpp
def test_both_languages_choose_the_same_to_the_last_bit():
    compared = 0
    for problem in random_problems(seed=3, num=1500):
        for name in ("greedy_choice", "exact_choice", "least_saved_choice", "least_memory_choice"):
            choice = getattr(PYTHON, name)(problem)
            assert choice == getattr(CPP, name)(problem), (name, problem)
            if choice is not None:
                compared += 1
                assert PYTHON.milliseconds(problem, choice) == CPP.milliseconds(problem, choice)
                assert PYTHON.peak_bytes(problem, choice) == CPP.peak_bytes(problem, choice)
    assert compared > 3000


_cost = st.builds(
    lambda ms, saved, workspace, buffer: Cost(ms, saved, workspace + buffer, buffer),
    st.floats(1e-3, 1e6),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.sampled_from([0, 0, 2**30, 2**36]),
)
_options = st.lists(_cost, min_size=1, max_size=12).map(tuple)


@needs_cpp
@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    kinds=st.lists(_options, min_size=1, max_size=4, unique=True),
    picks=st.lists(st.integers(0, 3), min_size=1, max_size=24),
    head=st.integers(0, 2**42),
    in_flight=st.integers(1, 8),
    share=st.floats(0.05, 1.1),
)
def test_both_languages_choose_the_same_for_deep_stacks_of_large_numbers(kinds, picks, head, in_flight, share):
    problem = Problem.of([kinds[pick % len(kinds)] for pick in picks], 0, head, in_flight, min(head, 2**30))
    generous = problem.peak_bytes((0,) * len(picks))
    problem = dataclasses.replace(problem, budget_bytes=int(share * generous))
    choice = greedy_choice(problem)
    assert choice == CPP.greedy_choice(problem)
    assert choice is None or problem.milliseconds(choice) == CPP.milliseconds(problem, choice)


@pytest.mark.parametrize("searches", SEARCHES)
def test_greedy_finds_a_plan_where_every_single_change_makes_things_worse(searches):
    """Changing one layer at a time gets stuck here."""
    layers = (
        (Cost(1, 1, 1), Cost(6, 1, 0)),
        (Cost(3, 7, 2), Cost(5, 5, 8)),
        (Cost(4, 4, 3), Cost(9, 2, 2)),
    )
    problem = Problem.of(layers, budget_bytes=13)
    assert searches.exact_choice(problem) == searches.greedy_choice(problem) == (0, 0, 1)


@pytest.mark.parametrize("searches", SEARCHES)
def test_what_a_heavy_layer_in_the_middle_forces_on_those_before_it_is_not_paid_by_those_after_it(searches):
    """The middle layer's workspace leaves 10 bytes to the layers before it; those after it need not be lean."""
    usual, heavy = (Cost(1.0, 10, 0), Cost(3.0, 2, 0)), (Cost(1.0, 0, 80),)
    problem = Problem.of([usual] * 4 + [heavy] + [usual] * 4, budget_bytes=92)
    assert searches.greedy_choice(problem) == (1, 1, 1, 1, 0, 0, 0, 0, 0)


def test_dominated_options_are_left_out_and_only_those():
    fast, lean, calm = Cost(1, 100, 100), Cost(3, 10, 100), Cost(3, 100, 10)
    worse_than_fast, equal_to_lean, worse_than_lean = Cost(1, 101, 100), Cost(3, 10, 100), Cost(4, 10, 101)
    too_large = Cost(0.5, 900, 200)
    options = [worse_than_fast, lean, fast, equal_to_lean, calm, worse_than_lean, too_large]
    assert efficient_indices(options, 1000) == (2, 1, 4)
    assert efficient_indices(options, 1100) == (6, 2, 1, 4)
    assert efficient_indices(options, 1100, num_in_flight=2) == (2, 1, 4)


def test_no_option_that_matters_is_pruned():
    """For any layer, leaving out what `efficient_indices` leaves out changes neither feasibility nor the best time."""
    chooser = random.Random(3)
    for _ in range(200):
        problem = random_problem(chooser, alike=False, max_layers=3)
        problem = chooser.choice(levels(problem)).problem
        kept = [efficient_indices(o, problem.budget_bytes, problem.num_in_flight) for o in problem.kinds]
        before = exact_choice(problem)
        if before is None:
            continue
        kinds = tuple(tuple(o[i] for i in indices) for o, indices in zip(problem.kinds, kept, strict=True))
        pruned = dataclasses.replace(problem, kinds=kinds)
        assert pruned.milliseconds(exact_choice(pruned)) == pytest.approx(problem.milliseconds(before), rel=1e-12)


@pytest.mark.parametrize("searches", SEARCHES)
def test_a_choice_once_returned_keeps_its_promise(searches):
    """What was returned is immutable and still fits after further searches of the same and of other problems."""
    some = list(random_problems(seed=4, num=40))
    first = [searches.greedy_choice(problem) for problem in some]
    second = [searches.greedy_choice(problem) for problem in some]
    assert first == second and sum(choice is not None for choice in first) > 10
    for problem, choice in zip(some, first, strict=True):
        assert choice is None or (type(choice) is tuple and problem.fits(choice))


def _scaled(problem, unit):
    kinds = tuple(
        tuple(
            Cost(c.milliseconds, c.saved_bytes * unit, c.workspace_bytes * unit, c.buffer_bytes * unit) for c in options
        )
        for options in problem.kinds
    )
    in_units = {name: getattr(problem, name) * unit for name in ("budget_bytes", "head_bytes", "head_buffer_bytes")}
    return dataclasses.replace(problem, kinds=kinds, **in_units)


def test_bytes_beyond_64_bits():
    """In Python, integers do not overflow; the choice scales with the unit."""
    for small in random_problems(seed=6, num=30):
        assert greedy_choice(_scaled(small, 2**60)) == greedy_choice(small)


@needs_cpp
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", [2**53, 2**58, 2**70])
def test_bytes_beyond_64_bits_are_a_sentence_in_cpp(name, unit):
    """Where single costs, sums over layers or over micro-batches leave 64 bits."""
    problem = _scaled(Problem.of([(Cost(1.0, 100, 50),)] * 5, 10_000, 60, 4), unit)
    arguments = ((0,) * 5,) if name in ("peak_bytes", "milliseconds") else ()
    with pytest.raises(ValueError, match=r"2\^62|64 bits"):
        getattr(CPP, name)(problem, *arguments)


@needs_cpp
@pytest.mark.parametrize("budget", [-(10**30), -5, 0, 2**63 - 1, 10**30])
def test_any_budget_is_understood_in_cpp(budget):
    problem = Problem.of([(Cost(1.0, 100, 50), Cost(2.0, 10, 50))] * 5, budget, 60, 4)
    assert CPP.greedy_choice(problem) == greedy_choice(problem) == ((0,) * 5 if budget > 0 else None)


@pytest.mark.parametrize("searches", SEARCHES)
def test_alike_layers_get_large_workspaces_first_and_runs(searches):
    options = (Cost(1, 10, 0), Cost(2, 4, 12))
    problem = Problem.of((options,) * 5, budget_bytes=40)
    choice = searches.greedy_choice(problem)
    assert set(choice) == {0, 1}
    assert list(choice) == sorted(choice, reverse=True)
    assert problem.milliseconds(choice) == problem.milliseconds(searches.exact_choice(problem))
