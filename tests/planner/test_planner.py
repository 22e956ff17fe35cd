"""Plans by length: fit, hysteresis without memory, the largest length."""

import itertools

import pytest

from paradyse_megatron.bench.schedule import simulated_peak
from paradyse_megatron.layouts.padding import pad_to_multiple
from paradyse_megatron.planner.cost import Cost, HeadCost
from paradyse_megatron.planner.planner import MAX_CACHED_LENGTHS, Planner, grid_length


class Costs:
    """A cost model of two ranks with made-up numbers: `tp_sp` fast when short, `ring` when long, `+full` lean."""

    group_size = 2
    options = ("tp_sp", "ring", "ring+full")

    def __init__(self):
        self.num_calls = 0

    def predict(self, option, seq_length):
        self.num_calls += 1
        s = seq_length
        return {
            "tp_sp": Cost(1 + 0.010 * s, 300 * s, 900 * s),
            "ring": Cost(5 + 0.006 * s, 200 * s, 20_000 + 100 * s),
            "ring+full": Cost(7 + 0.008 * s, 20 * s, 20_000 + 300 * s),
        }[option]

    def predict_head(self, seq_length):
        return HeadCost(0.001 * seq_length, 500 * seq_length)


def planned_costs(plan, length):
    return [Costs().predict(option, pad_to_multiple(length, 2)) for option in plan.options]


def test_short_and_long_lengths_get_different_plans():
    planner = Planner(Costs(), 4, 10**9)
    assert str(planner.plan(100)) == "tp_sp"
    assert str(planner.plan(10_000)) == "ring"


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("with_head", [True, False])
def test_predictions_are_those_of_the_plan_and_the_simulation_agrees(in_flight, with_head):
    budget, static = 9_000_000, 1_000_000
    planner = Planner(Costs(), 6, budget, microbatches_in_flight=in_flight, with_head=with_head, static_bytes=static)
    seen = set()
    for length in range(100, 40_000, 397):
        plan = planner.plan(length)
        padded = pad_to_multiple(length, 2)
        head = Costs().predict_head(padded) if with_head else HeadCost(0, 0)
        costs = planned_costs(plan, length)
        assert plan.predicted_bytes == static + simulated_peak(costs, head.saved_bytes, in_flight)
        assert plan.predicted_ms == pytest.approx(sum(c.milliseconds for c in costs) + head.milliseconds)
        assert plan.fits == (plan.predicted_bytes <= budget)
        seen.add((plan.fits, len(set(plan.options)) > 1))
    assert {(True, False), (True, True)} <= seen  # uniform, then mixed under pressure
    assert False in {fits for fits, _ in seen}  # then hopeless


def test_where_nothing_fits_the_leanest_plan_is_returned_and_the_next_length_is_judged_anew():
    planner = Planner(Costs(), 3, 3_000_000)
    hopeless = planner.plan(100_000)
    peaks = [
        simulated_peak([Costs().predict(o, 100_000) for o in options], 500 * 100_000, 1)
        for options in itertools.product(Costs.options, repeat=3)
    ]
    assert hopeless.fits is False and hopeless.predicted_bytes == min(peaks)
    assert planner.plan(500).fits is True


def test_the_same_length_gets_the_same_plan_whatever_came_before():
    lengths = list(range(50, 8000, 161))
    upwards, downwards, fresh = Planner(Costs(), 4, 4_000_000), Planner(Costs(), 4, 4_000_000), {}
    for length in lengths:
        upwards.plan(length)
        fresh[length] = Planner(Costs(), 4, 4_000_000).plan(length)
    for length in reversed(lengths):
        downwards.plan(length)
    assert len({str(plan) for plan in fresh.values()}) > 3
    for length in lengths:
        assert upwards.plan(length) == downwards.plan(length) == fresh[length]


def test_hysteresis_keeps_the_plan_of_the_grid_length_within_the_bound():
    """tp_sp and ring are equally fast at 1000 tokens; the grid length above, 1024 = 2 * 512, prefers ring."""

    def planned(hysteresis, length):
        return str(Planner(Costs(), 1, 10**9, options=["tp_sp", "ring"], hysteresis=hysteresis).plan(length))

    assert grid_length(990, 2) == 1024
    assert planned(0.0, 990) == "tp_sp" and planned(0.05, 990) == "ring"
    assert planned(0.0, 1010) == planned(0.05, 1010) == "ring"
    assert planned(0.05, 700) == "tp_sp"  # ring would take more than 5 % longer
    best_ms = Planner(Costs(), 1, 10**9, hysteresis=0.0).plan(990).predicted_ms
    assert best_ms < Planner(Costs(), 1, 10**9).plan(990).predicted_ms <= 1.05 * best_ms


def test_hysteresis_never_prefers_a_plan_that_does_not_fit():
    """Equally fast; `ring` is leaner from 500 tokens on. At 512, the grid length, neither fits; at 488 only `tp_sp`."""

    class Crossing(Costs):
        options = ("tp_sp", "ring")

        def predict(self, option, seq_length):
            fixed, per_token = {"tp_sp": (0, 1000), "ring": (50_000, 900)}[option]
            return Cost(1.0, fixed + per_token * seq_length, 0)

    planner = Planner(Crossing(), 1, 488_500, with_head=False)
    assert str(planner.plan(512)) == "ring" and not planner.plan(512).fits
    assert str(planner.plan(488)) == "tp_sp" and planner.plan(488).fits


def test_hysteresis_means_fewer_changes_of_plan():
    def num_changes(hysteresis):
        planner = Planner(Costs(), 12, 6_000_000, hysteresis=hysteresis)
        plans = [planner.plan(length) for length in range(300, 3000, 14)]
        assert all(plan.fits for plan in plans if plan.predicted_bytes <= 6_000_000)
        return sum(before != after for before, after in itertools.pairwise(plans))

    assert num_changes(0.05) < num_changes(0.0)


@pytest.mark.parametrize("multiple", [1, 2, 4, 6, 16])
def test_the_grid(multiple):
    lengths = [multiple * n for n in range(1, 3000)]
    points = [grid_length(length, multiple) for length in lengths]
    for length, point in zip(lengths, points, strict=True):
        assert length <= point and point % multiple == 0
        assert grid_length(point, multiple) == point
    assert points == sorted(points)
    distinct = sorted(set(points))
    assert all(b < 2**0.25 * (a + multiple) for a, b in itertools.pairwise(distinct))  # a was rounded down
    assert grid_length(multiple * 2**20, multiple) == multiple * 2**20


def test_lengths_are_padded_first():
    costs = Costs()
    planner = Planner(costs, 2, 10**9)
    assert planner.plan(997) is planner.plan(1000)
    calls = costs.num_calls
    for length in (997, 998, 999, 1000):
        planner.plan(length)
    assert costs.num_calls == calls


def test_the_cache_is_bounded():
    planner = Planner(Costs(), 1, 10**12)
    for length in range(4, 4 * (MAX_CACHED_LENGTHS + 50), 4):
        planner.plan(length)
    assert planner._plan_of_padded.cache_info().currsize == MAX_CACHED_LENGTHS


@pytest.mark.parametrize("budget", [30_000, 3_000_000, 40_000_000])
def test_the_largest_length_is_the_border(budget):
    planner = Planner(Costs(), 3, budget)
    largest = planner.largest_length(10**7)
    assert largest % 4 == 0 and 0 < largest < 10**7
    assert planner.plan(largest).fits and not planner.plan(largest + 1).fits
    assert planner.largest_length(largest - 1) == largest - 1
    assert planner.largest_length(largest + 2) == largest


def test_the_largest_length_at_the_ends():
    assert Planner(Costs(), 3, 1000).largest_length(10_000) == 0
    assert Planner(Costs(), 3, 1000).largest_length(1) == 0
    assert Planner(Costs(), 3, 10**9).largest_length(4099) == 4099
    with pytest.raises(ValueError, match="at least 1 token"):
        Planner(Costs(), 3, 1000).largest_length(0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_layers": 0}, "number of layers must be at least 1 layer"),
        ({"memory_budget_bytes": 0}, "memory budget must be at least 1 byte"),
        ({"memory_budget_bytes": 1e9}, "whole number of bytes"),
        ({"hysteresis": -0.1}, "hysteresis must be a share of at least 0"),
        ({"hysteresis": float("nan")}, "hysteresis"),
        ({"options": []}, "at least one option; the cost model knows tp_sp, ring, ring"),
        ({"options": ["ulysses"]}, "no costs of 'ulysses'; it knows tp_sp, ring"),
        ({"options": ["nonsense"]}, "does not exist"),
        ({"microbatches_in_flight": 0}, "micro-batches in flight"),
        ({"static_bytes": -1}, "static bytes"),
    ],
)
def test_bad_arguments_are_sentences(arguments, named):
    with pytest.raises(ValueError, match=named):
        Planner(**({"cost_model": Costs(), "num_layers": 2, "memory_budget_bytes": 10**9} | arguments))


def test_lengths_that_are_none():
    for length in (0, -1, 1.5):
        with pytest.raises(ValueError, match="sequence length"):
            Planner(Costs(), 2, 10**9).plan(length)


def test_options_restrict_the_plan():
    planner = Planner(Costs(), 2, 10**9, options=["ring/gathered"])
    assert planner.plan(10).options == ("ring", "ring")
