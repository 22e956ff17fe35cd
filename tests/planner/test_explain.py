"""The survey over all lengths and the explanation of one: held against the planner itself, point by point."""

from __future__ import annotations

import functools

import pytest

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.explain import explain
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.survey import break_evens, largest_lengths
from tests.ranks import REPOSITORY

GIB = 2**30
RANKS = 8
LIMIT = 4_194_304


@pytest.fixture(scope="module")
def cost_model():
    cluster = Cluster.from_yaml(REPOSITORY / "configs" / "clusters" / "dgx-h100.yaml")
    return estimate(ModelShape.from_yaml(REPOSITORY / "configs" / "models" / "llama-3-8b.yaml"), cluster, RANKS)


@pytest.fixture(scope="module")
def make(cost_model):
    static_bytes = cost_model.shape.static_bytes(RANKS)
    return functools.partial(Planner, cost_model, 32, 72 * GIB, static_bytes=static_bytes)


def test_break_evens_are_the_lengths_where_the_fastest_changes(cost_model):
    def fastest(seq_length):
        return min(cost_model.options, key=lambda o: cost_model.predict(o, seq_length).milliseconds)

    changes = break_evens(cost_model, 262_144)
    assert len(changes) >= 2
    for change in changes:
        assert (fastest(change.seq_length - 16), fastest(change.seq_length)) == (change.before, change.after)
    ends = [64, *(change.seq_length for change in changes), 262_144]
    fastest_of_parts = [changes[0].before, *(change.after for change in changes)]
    for begin, end, expected in zip(ends, ends[1:], fastest_of_parts, strict=False):
        assert fastest((begin + end) // 32 * 16) == expected


def test_largest_lengths_fit_and_the_next_do_not(cost_model, make):
    found = largest_lengths(make, {o: [o] for o in ("tp_sp", "tp_sp+full", "metp")}, LIMIT)
    for option, length in found.items():
        assert make(options=[option]).plan(length).fits
        assert not make(options=[option]).plan(length + 1).fits
    assert make().largest_length(LIMIT) >= max(found.values()) > found["tp_sp"] > 0


@pytest.mark.parametrize("seq_length", [100, 9_712, 200_001])
def test_terms_are_those_of_the_cost_model_and_of_static_plans(cost_model, make, seq_length):
    found = explain(make, cost_model, seq_length, 72 * GIB, LIMIT)
    assert found.plan == make().plan(seq_length)
    assert sum(terms.num_layers for terms in found.terms) == 32
    assert [terms.milliseconds for terms in found.terms] == sorted(terms.milliseconds for terms in found.terms)
    for terms in found.terms:
        cost = cost_model.predict(terms.option, found.padded_length)
        assert (terms.milliseconds, terms.saved_bytes) == (cost.milliseconds, cost.saved_bytes)
        assert terms.everywhere.options == (terms.option,) * 32


def said(make, cost_model, seq_length):
    return " ".join(explain(make, cost_model, seq_length, 72 * GIB, LIMIT).sentences)


def test_a_buffer_that_one_option_makes_for_all_is_shown_and_said(cost_model):
    """Fused: of the hidden state only. At this length tp_sp layers and others are mixed."""
    make = functools.partial(Planner, cost_model, 32, 20 * GIB, options=["tp_sp", "metp+full"], hysteresis=0.0)
    found = explain(make, cost_model, 65_536, 20 * GIB, LIMIT)
    buffers = {terms.option: terms.buffer_bytes for terms in found.terms}
    assert buffers == {"tp_sp": 65_536 * 4096 * 2, "metp+full": 0}
    assert len(set(found.plan.options)) == 2
    assert "512 MiB of that are the buffer of Megatron's that tp_sp gathers into" in " ".join(found.sentences)
    assert {terms["layer_buffer_bytes"] for terms in found.as_dict()["terms"]} == set(buffers.values())


def test_sentences_follow_the_decision(cost_model, make):
    assert "So all 32 layers run tp_sp." in said(make, cost_model, 4096)
    assert "padded to 112" in said(make, cost_model, 100)
    long = said(make, cost_model, 200_001)
    assert "too much" in long and "the plan mixes" in long and "loss head is computed in chunks" in long
    assert "hysteresis" in long
    assert "hysteresis" not in said(functools.partial(make, hysteresis=0.0), cost_model, 4096)
    too_long = said(make, cost_model, 1_500_000)
    assert "No plan fits" in too_long and f"{make().largest_length(LIMIT):,} tokens" in too_long


def test_a_fastest_option_that_fits_leaves_room(cost_model, make):
    assert "are left" in said(make, cost_model, 4096)
    without_limit = explain(make, cost_model, 4096, None, LIMIT).sentences
    assert not any("may use" in sentence for sentence in without_limit)
