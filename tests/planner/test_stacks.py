"""Planners of layers of several kinds, in both languages; costs evaluated in C++; what a plan holds, simulated."""

import logging
import random
from dataclasses import replace

import pytest

from paradyse_megatron import planner
from paradyse_megatron.bench.deep_stacks import random_deep_stack
from paradyse_megatron.bench.schedule import schedule_peak
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.curve import LONGEST, Curve
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner import backends as backend_module
from paradyse_megatron.planner import native
from paradyse_megatron.planner.backends import make_stage
from paradyse_megatron.planner.cost import Cost, HeadCost
from paradyse_megatron.planner.planner import Planner, backend
from paradyse_megatron.planner.sources import find_sources
from tests.planner.backends import BOTH, needs_cpp
from tests.ranks import REPOSITORY

KINDS = ("dense", "dense", "moe", "dense", "moe", "moe")


class Dense:
    """A cost model of two ranks with made-up numbers."""

    group_size = 2
    options = ("tp_sp", "ring", "ring+full")
    heads = ("whole", "chunked")
    scale = 1

    def predict(self, option, seq_length):
        s = self.scale * seq_length
        return {
            "tp_sp": Cost(1 + 0.010 * s, 300 * s, 900 * s),
            "ring": Cost(5 + 0.006 * s, 200 * s, 20_000 + 100 * s),
            "ring+full": Cost(7 + 0.008 * s, 20 * s, 20_000 + 300 * s),
            "ulysses": Cost(4 + 0.007 * s, 150 * s, 30_000 + 200 * s),
        }[option]

    def predict_head(self, seq_length, head="whole"):
        whole, chunked = HeadCost(0.001 * seq_length, 3000 * seq_length), HeadCost(0.0015 * seq_length, 50_000)
        return chunked if head == "chunked" else whole


class Experts(Dense):
    """Three times the cost, and without `ring`."""

    options = ("tp_sp", "ring+full", "ulysses")
    scale = 3


MODELS = {"dense": Dense(), "moe": Experts()}


def stack_planner(**arguments):
    return Planner(MODELS, len(KINDS), 60_000_000, layer_kinds=KINDS, **arguments)


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("in_flight", [1, 3])
def test_each_kind_follows_its_own_options_and_the_schedule_holds_what_was_predicted(backend, in_flight):
    planner = stack_planner(microbatches_in_flight=in_flight, backend=backend)
    assert {str(option) for option in planner.options} == {"tp_sp", "ring", "ring+full", "ulysses"}
    seen = set()
    for length in range(500, 60_000, 1500):
        plan = planner.plan(length)
        costs = [MODELS[kind].predict(option, length) for kind, option in zip(KINDS, plan.options, strict=True)]
        assert all(option in MODELS[kind].options for kind, option in zip(KINDS, plan.options, strict=True))
        head = MODELS["moe"].predict_head(length, plan.head)
        assert plan.predicted_bytes == schedule_peak(costs, head.saved_bytes, in_flight)
        assert plan.predicted_ms == pytest.approx(sum(cost.milliseconds for cost in costs) + head.milliseconds)
        assert plan.fits == (plan.predicted_bytes <= 60_000_000)
        seen.add((plan.fits, plan.head, len(set(plan.options)) > 2))
    assert {fits for fits, _, _ in seen} == {True, False}
    assert {head for _, head, _ in seen} == {"whole", "chunked"} and True in {mixed for _, _, mixed in seen}


@needs_cpp
@pytest.mark.parametrize("in_flight", [1, 4])
def test_plans_are_equal_in_both_languages(in_flight):
    python, cpp = (stack_planner(microbatches_in_flight=in_flight, backend=name) for name in ("python", "cpp"))
    for length in range(100, 40_000, 700):
        assert repr(python.plan(length)) == repr(cpp.plan(length))
    assert python.largest_length(10**6) == cpp.largest_length(10**6) > 1000


@needs_cpp
def test_deep_stacks_of_realistic_costs_are_decided_equally_and_hold_what_was_predicted():
    chooser = random.Random(11)
    for case in range(6):
        stack = random_deep_stack(chooser, num_kinds=1 + case % 3)
        found = stack.stage("cpp").best(stack.tokens)
        assert found == stack.stage("python").best(stack.tokens) and found.fits
        kinds, heads = stack.sources.at(stack.tokens)
        costs = [kinds[kind][index] for kind, index in zip(stack.sources.layers, found.choice, strict=True)]
        head = heads[found.head]
        assert schedule_peak(costs, head.saved_bytes, stack.num_in_flight, head.buffer_bytes) == found.peak_bytes


@needs_cpp
@pytest.mark.parametrize("tokens", [1, 4096, 999_999, 4_194_304])
@pytest.mark.parametrize("materialised", [False, True])
def test_costs_are_evaluated_as_the_cost_model_does(tokens, materialised):
    """A model with h = 16,384, and one with interpolated times; each option alone, so that every cost shows."""
    profiled = random_deep_stack(random.Random(5), num_kinds=1).sources.models[0]
    cost_model = costs_of_a_wide_model(materialised) if materialised else profiled
    for option in cost_model.options:
        sources = find_sources(cost_model, 1, None, [option], with_head=True, chunked_head=True)
        assert sources.curves() is not None
        for head in cost_model.heads:
            weighed = [make_stage(name, sources, 2**62, 1).weigh(tokens, head, (0,)) for name in ("python", "cpp")]
            assert weighed[0] == weighed[1]


@needs_cpp
def test_curves_have_the_same_value_in_both_languages_to_the_last_bit():
    chooser, compared = random.Random(6), 0
    for _ in range(60):
        lengths = sorted(chooser.sample(range(1, LONGEST), chooser.randint(1, 9)))
        values = sorted(10 ** chooser.uniform(-2, 9) for _ in lengths)
        above, below = (
            tuple(Polynomial(*(chooser.random() * 1e-4**power for power in range(3))) for _ in range(number))
            for number in (chooser.randint(1, 3), chooser.randint(1, 2))
        )
        curve = Curve(above, tuple(zip(lengths, values, strict=True)), below)
        in_cpp = native._native.Curve(curve.parts())
        for tokens in [*lengths, *(chooser.randint(1, LONGEST) for _ in range(1000))]:
            assert curve(tokens) == in_cpp(tokens)
            compared += 1
    assert compared > 60_000


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("materialised", [False, True])
def test_the_longest_sequence_of_a_wide_model_has_finite_positive_answers(backend, materialised):
    """Where 64 bits do not hold the sums, the C++ search hands over to the twin."""
    cost_model = costs_of_a_wide_model(materialised)
    for budget in (80 * 2**30, 10**18, 10**25):
        plan = Planner(cost_model, 96, budget, microbatches_in_flight=8, backend=backend).plan(4_194_304)
        assert 0 < plan.predicted_ms < float("inf")
        assert plan.predicted_bytes > 0 and plan.fits == (plan.predicted_bytes <= budget)


def costs_of_a_wide_model(materialised):
    shape = ModelShape(16_384, 96, 128, 53_248, 128_256, num_query_groups=8, dtype="bf16")
    cluster = Cluster.from_yaml(REPOSITORY / "configs" / "clusters" / "dgx-h100.yaml")
    return estimate(shape, replace(cluster, attention_materialised=materialised), 8)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"layer_kinds": KINDS[:5]}, "6 layers, but layer_kinds names the kinds of 5"),
        (
            {"layer_kinds": ("dense",) * 5 + ("mamba",)},
            "no costs of layers of the kind 'mamba'; there are of dense, moe",
        ),
        ({"options": ["ring"]}, "the kind 'moe' can follow none of the options ring"),
        ({"options": ["upipe"]}, "no costs of 'upipe'"),
        ({"backend": "rust"}, "one of auto, cpp, python, but 'rust'"),
    ],
)
def test_what_does_not_go_together_is_a_sentence(arguments, named):
    with pytest.raises(ValueError, match=named):
        Planner(MODELS, 6, 10**9, **({"layer_kinds": KINDS} | arguments))


def test_without_the_extension_the_twin_serves_and_one_line_says_so(monkeypatch, caplog):
    monkeypatch.setattr(native, "missing", "no compiler")
    backend_module._say.cache_clear()
    with caplog.at_level(logging.INFO, logger=backend_module.__name__):
        plans = {str(stack_planner().plan(9000)) for _ in range(2)}
    assert backend() == "python"
    assert plans == {str(stack_planner(backend="python").plan(9000))}
    assert [record.getMessage() for record in caplog.records] == [
        "The planner searches in Python, as its C++ extension is not built (no compiler)."
    ]
    with pytest.raises(ValueError, match="not built here"):
        stack_planner(backend="cpp")
    backend_module._say.cache_clear()


@needs_cpp
def test_with_the_extension_it_serves_and_one_line_says_so(caplog):
    backend_module._say.cache_clear()
    with caplog.at_level(logging.INFO, logger=backend_module.__name__):
        assert type(stack_planner()._stage) is native.NativeStage
        stack_planner()
    assert backend() == planner.backend() == "cpp"
    assert [record.getMessage() for record in caplog.records] == ["The planner searches in C++."]
