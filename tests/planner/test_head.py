"""Whole or chunked loss head: by need, by length, and always the same."""

import dataclasses
import itertools
import random

import pytest

from paradyse_megatron.bench.problems import random_problem
from paradyse_megatron.bench.schedule import simulated_peak
from paradyse_megatron.planner.cost import Cost, HeadCost
from paradyse_megatron.planner.exact import exact_choice
from paradyse_megatron.planner.head import Variant, best_draft
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.problem import Problem

BUDGET = 9_000_000
LENGTHS = range(100, 60_000, 397)


class WithoutChunks:
    """A cost model of two ranks, with made-up numbers, that knows nothing of chunks."""

    group_size = 2
    options = ("tp_sp", "ring", "ring+full")

    def predict(self, option, seq_length):
        s = seq_length
        return {
            "tp_sp": Cost(1 + 0.010 * s, 300 * s, 900 * s),
            "ring": Cost(5 + 0.006 * s, 200 * s, 20_000 + 100 * s),
            "ring+full": Cost(7 + 0.008 * s, 20 * s, 20_000 + 300 * s),
        }[option]

    def predict_head(self, seq_length):
        return HeadCost(0.001 * seq_length, 500 * seq_length)


class Costs(WithoutChunks):
    """The chunked head is slower and, when long, much leaner."""

    heads = ("whole", "chunked")

    def predict_head(self, seq_length, head="whole"):
        chunked = HeadCost(0.0015 * seq_length, 50_000 + 10 * seq_length)
        return chunked if head == "chunked" else super().predict_head(seq_length)


def layers_ms(plan, length):
    return sum(Costs().predict(option, length).milliseconds for option in plan.options)


def test_short_sequences_keep_the_whole_head_and_long_ones_are_chunked():
    planner = Planner(Costs(), 6, BUDGET)
    heads = [planner.plan(length).head for length in LENGTHS if planner.plan(length).fits]
    assert heads[0] == "whole" and heads[-1] == "chunked"
    assert sum(before != after for before, after in itertools.pairwise(heads)) < 10
    assert {Planner(Costs(), 6, 10**12).plan(length).head for length in LENGTHS} == {"whole"}  # nothing asks for chunks


@pytest.mark.parametrize("in_flight", [1, 3])
def test_predictions_are_those_of_the_head_that_was_chosen(in_flight):
    planner = Planner(Costs(), 6, BUDGET, microbatches_in_flight=in_flight, static_bytes=1_000_000)
    seen = set()
    for length in range(100, 60_000, 396):
        plan = planner.plan(length)
        costs = [Costs().predict(option, length) for option in plan.options]
        head = Costs().predict_head(length, plan.head)
        assert plan.predicted_bytes == 1_000_000 + simulated_peak(costs, head.saved_bytes, in_flight)
        assert plan.predicted_ms == pytest.approx(sum(cost.milliseconds for cost in costs) + head.milliseconds)
        assert plan.fits == (plan.predicted_bytes <= BUDGET)
        seen.add((plan.head, plan.fits))
    assert seen >= {("whole", True), ("chunked", True), ("chunked", False)}


def test_chunks_are_taken_for_need_or_for_faster_layers_only():
    both, whole_only = (Planner(Costs(), 6, BUDGET, hysteresis=0.0, chunked_head=chunked) for chunked in (True, False))
    reasons = set()
    for length in range(100, 60_000, 396):
        plan, whole = both.plan(length), whole_only.plan(length)
        assert whole.head == "whole"
        if plan.head == "whole":
            assert plan == whole
        elif plan.fits and not whole.fits:
            reasons.add("need")
        elif plan.fits:
            assert layers_ms(plan, length) < layers_ms(whole, length) and plan.predicted_ms < whole.predicted_ms
            reasons.add("faster")
        else:
            assert plan.predicted_bytes < whole.predicted_bytes
            reasons.add("leaner")
    assert reasons == {"need", "faster", "leaner"}
    assert both.largest_length(10**6) > whole_only.largest_length(10**6)


@pytest.mark.parametrize(
    ("options", "head_ms", "expected"),
    [
        ([Cost(1.0, 60, 0), Cost(5.0, 10, 0)], (1.0, 2.0), "chunked"),  # 1 + 2 instead of 5 + 1
        ([Cost(1.0, 60, 0), Cost(5.0, 10, 0)], (1.0, 6.0), "whole"),  # 1 + 6 would be more than 5 + 1
        ([Cost(1.0, 10, 0), Cost(5.0, 10, 0)], (3.0, 2.0), "whole"),  # the layers are as fast with the whole head
        ([Cost(1.0, 10, 200), Cost(5.0, 10, 0)], (3.0, 2.0), "whole"),  # the fast option fits with neither
        ([Cost(1.0, 70, 0), Cost(5.0, 50, 0)], (1.0, 9.0), "chunked"),  # nothing fits with the whole head
    ],
)
def test_faster_layers_or_need_and_nothing_else_call_for_chunks(options, head_ms, expected):
    """That the head alone would be faster does not: off by default means that memory decides."""
    layers = (tuple(options),)
    whole, lean = (Problem.of(layers, budget_bytes=100, head_bytes=head_bytes) for head_bytes in (60, 5))
    variants = {"whole": Variant(whole, head_ms[0]), "chunked": Variant(lean, head_ms[1])}
    assert best_draft(variants).head == expected


def test_whether_anything_fits_is_decided_over_both_heads_exactly():
    chooser, seen = random.Random(8), set()
    for _ in range(300):
        whole = random_problem(chooser, alike=False, max_layers=4)
        lean = dataclasses.replace(whole, head_bytes=whole.head_bytes // 4)
        variants = {"whole": Variant(whole, 1.0), "chunked": Variant(lean, 2.0)}
        draft = best_draft(variants)
        fits = variants[draft.head].problem.fits(draft.choice)
        assert fits == (exact_choice(lean) is not None)
        seen.add((draft.head, fits))
    assert seen == {("whole", True), ("chunked", True), ("chunked", False), ("whole", False)}


def test_the_same_length_gets_the_same_head_whatever_came_before():
    once = Planner(Costs(), 6, BUDGET)
    plans = {length: once.plan(length) for length in LENGTHS}
    again = Planner(Costs(), 6, BUDGET)
    assert all(again.plan(length) == plans[length] for length in reversed(LENGTHS))
    assert len({plan.head for plan in plans.values()}) == 2


def test_the_largest_length_is_the_border_over_both_heads():
    planner = Planner(Costs(), 6, BUDGET)
    largest = planner.largest_length(10**6)
    assert planner.plan(largest).fits and planner.plan(largest).head == "chunked"
    assert not planner.plan(largest + 1).fits


@pytest.mark.parametrize(
    ("costs", "arguments"), [(Costs(), {"with_head": False}), (Costs(), {"chunked_head": False}), (WithoutChunks(), {})]
)
def test_where_chunks_are_not_to_be_had_the_head_is_whole(costs, arguments):
    planner = Planner(costs, 6, BUDGET, **arguments)
    assert planner.heads == ("whole",)
    assert {planner.plan(length).head for length in LENGTHS} == {"whole"}
