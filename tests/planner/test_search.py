"""The greedy search against the exact one, and the exact one against trying everything."""

import itertools
import random
import statistics

import pytest

from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.exact import exact_choice
from paradyse_megatron.planner.feasible import least_memory_choice, least_saved_choice
from paradyse_megatron.planner.problem import Problem
from paradyse_megatron.planner.search import efficient_indices, greedy_choice
from tests.planner.problems import random_problem, simulated_peak

MEAN_GAP, WORST_GAP = 0.005, 0.25  # greedy over exact; seen: 0.1 % and 17 %


def all_choices(problem):
    return itertools.product(*(range(len(options)) for options in problem.layers))


def test_exact_feasible_and_least_memory_against_trying_everything():
    chooser = random.Random(1)
    num_fitting = 0
    for case in range(300):
        problem = random_problem(chooser, alike=bool(case % 2), max_layers=4)
        fitting = [choice for choice in all_choices(problem) if problem.fits(choice)]
        exact, least_saved = exact_choice(problem), least_saved_choice(problem)
        assert (exact is None) == (least_saved is None) == (not fitting)
        lowest = min(problem.peak_bytes(choice) for choice in all_choices(problem))
        assert problem.peak_bytes(least_memory_choice(problem)) == lowest
        if fitting:
            num_fitting += 1
            assert problem.milliseconds(exact) == pytest.approx(min(map(problem.milliseconds, fitting)), rel=1e-12)
            saved = [sum(cost.saved_bytes for cost in problem.costs(choice)) for choice in fitting]
            assert sum(cost.saved_bytes for cost in problem.costs(least_saved)) == min(saved)
    assert 50 < num_fitting < 250


@pytest.mark.parametrize("alike", [True, False])
def test_greedy_fits_whenever_exact_does_and_is_nearly_as_fast(alike):
    chooser = random.Random(2)
    gaps, num_hopeless = [], 0
    for _ in range(500):
        problem = random_problem(chooser, alike)
        exact, greedy = exact_choice(problem), greedy_choice(problem)
        assert (exact is None) == (greedy is None)
        if exact is None:
            num_hopeless += 1
            continue
        peak = simulated_peak(problem.costs(greedy), problem.head_bytes, problem.num_in_flight)
        assert peak == problem.peak_bytes(greedy) <= problem.budget_bytes
        gaps.append(problem.milliseconds(greedy) / problem.milliseconds(exact) - 1)
    assert len(gaps) > 100 and num_hopeless > 100
    assert min(gaps) > -1e-12
    assert statistics.mean(gaps) < MEAN_GAP and max(gaps) < WORST_GAP


def test_greedy_finds_a_plan_where_every_single_change_makes_things_worse():
    """Changing one layer at a time gets stuck here; the least-saving plan is the other start."""
    layers = (
        (Cost(1, 1, 1), Cost(6, 1, 0)),
        (Cost(3, 7, 2), Cost(5, 5, 8)),
        (Cost(4, 4, 3), Cost(9, 2, 2)),
    )
    problem = Problem(layers, budget_bytes=13)
    assert exact_choice(problem) == greedy_choice(problem) == (0, 0, 1)


def test_dominated_options_are_left_out_and_only_those():
    fast, lean, calm = Cost(1, 100, 100), Cost(3, 10, 100), Cost(3, 100, 10)
    worse_than_fast, equal_to_lean, worse_than_lean = Cost(1, 101, 100), Cost(3, 10, 100), Cost(4, 10, 101)
    too_large = Cost(0.5, 900, 200)
    options = [worse_than_fast, lean, fast, equal_to_lean, calm, worse_than_lean, too_large]
    assert efficient_indices(options, Problem((), 1000)) == (2, 1, 4)
    assert efficient_indices(options, Problem((), 1100)) == (6, 2, 1, 4)
    assert efficient_indices(options, Problem((), 1100, 0, 2)) == (2, 1, 4)


def test_no_option_that_matters_is_pruned():
    """For any layer, leaving out what `efficient_indices` leaves out changes neither feasibility nor the best time."""
    chooser = random.Random(3)
    for _ in range(200):
        problem = random_problem(chooser, alike=False, max_layers=3)
        kept = tuple(tuple(o[i] for i in efficient_indices(o, problem)) for o in problem.layers)
        before = exact_choice(problem)
        if before is None:
            continue
        pruned = Problem(kept, problem.budget_bytes, problem.head_bytes, problem.num_in_flight)
        assert pruned.milliseconds(exact_choice(pruned)) == pytest.approx(problem.milliseconds(before), rel=1e-12)


def test_a_choice_once_returned_keeps_its_promise():
    """What was returned is immutable and still fits after further searches of the same and of other problems."""
    chooser = random.Random(4)
    problems = [random_problem(chooser, alike=False) for _ in range(40)]
    first = [greedy_choice(problem) for problem in problems]
    second = [greedy_choice(problem) for problem in problems]
    assert first == second and sum(choice is not None for choice in first) > 10
    for problem, choice in zip(problems, first, strict=True):
        assert choice is None or (type(choice) is tuple and problem.fits(choice))


def test_bytes_beyond_64_bits():
    """Python's integers take over where sums of 64-bit ones could overflow; the choice scales with the unit."""
    chooser = random.Random(6)
    for _ in range(30):
        small = random_problem(chooser, alike=False, max_layers=4)
        unit = 2**60
        layers = tuple(
            tuple(Cost(c.milliseconds, c.saved_bytes * unit, c.workspace_bytes * unit) for c in options)
            for options in small.layers
        )
        large = Problem(layers, small.budget_bytes * unit, small.head_bytes * unit, small.num_in_flight)
        assert greedy_choice(large) == greedy_choice(small)


def test_alike_layers_get_large_workspaces_first_and_runs():
    options = (Cost(1, 10, 0), Cost(2, 4, 12))
    problem = Problem((options,) * 5, budget_bytes=40)
    choice = greedy_choice(problem)
    assert set(choice) == {0, 1}
    assert list(choice) == sorted(choice, reverse=True)
    assert problem.milliseconds(choice) == problem.milliseconds(exact_choice(problem))
