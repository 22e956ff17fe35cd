"""Plans are followed: the collectives of each layer are exactly those of its option, and nothing else is computed."""

from __future__ import annotations

import pytest

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.volumes import Sent, layer
from paradyse_megatron.planner.plan import Plan
from tests.layers.equality import HEAD_PLANS, SELECTIVE_PLANS, STREAMED_PLANS, UNIFORM
from tests.layers.traffic import BATCH, HALF_CHUNKS
from tests.ranks import run_ranks

SHAPES = {
    "gpt": ModelShape(48, 3, 24, 96, 96, num_query_groups=24, head_dim=4, dtype="fp32"),
    "llama": ModelShape(
        48, 3, 24, 96, 96, num_query_groups=12, head_dim=4, gated_mlp=True, add_bias=False, dtype="fp32"
    ),
    "grouped": ModelShape(
        48, 3, 24, 96, 96, num_query_groups=2, head_dim=4, gated_mlp=True, add_bias=False, dtype="fp32"
    ),
    "mqa": ModelShape(48, 3, 24, 96, 96, num_query_groups=1, head_dim=4, dtype="fp32"),
}
PLANS = [
    *UNIFORM,
    *HEAD_PLANS,
    *STREAMED_PLANS,
    *SELECTIVE_PLANS,
    "ring,tp_sp/gathered+full,ulysses/tp_sp",
    "tp_sp",
    "ulysses,ring*2",
]


@pytest.mark.parametrize(
    ("family", "num_ranks"), [("gpt", 2), ("gpt", 3), ("llama", 2), ("llama", 3), ("grouped", 4), ("mqa", 2)]
)
def test_layers_send_exactly_what_their_options_say(family, num_ranks):
    """Plans follow each other on one model, so switching adds nothing either."""
    enough_keys = SHAPES[family].num_query_groups >= num_ranks
    plans = [
        text for text in PLANS if (enough_keys or "metp" not in text) and (family, text) != ("mqa", "usp+selective")
    ]
    by_rank = run_ranks("tests.layers.traffic:sent_by_layers", num_ranks, family, plans, timeout_seconds=200)
    assert len(by_rank[0]) == len(plans) > 10
    for text in plans:
        expected = Sent()
        for option in Plan.parse(text, 3).layer_options:
            expected += layer(option, SHAPES[family], num_ranks, 2 * HALF_CHUNKS, BATCH)
        busiest = max(found[text] for found in by_rank)
        assert busiest == (expected.forward, expected.backward, expected.forward_calls, expected.backward_calls), text


def test_tp_sp_is_stock_megatron_bit_by_bit():
    found = run_ranks("tests.layers.traffic:stock_difference", 2, timeout_seconds=120)
    assert len(found[0]) == 4
    assert all(all(same.values()) for same in found), found


def test_attention_that_is_not_plain_causal_is_refused_by_name():
    found = run_ranks("tests.layers.traffic:refusals", 2, timeout_seconds=120)[0]
    assert len(found) == 7
    assert (
        "'ring+selective' does not work with this layer: its core keeps only q, k, v" in found["causal ring+selective"]
    )
    for plan in ("ulysses", "ring"):
        assert found[f"causal {plan}"] == "accepted"
        assert plan in found[f"window {plan}"] and "causal mask only" in found[f"window {plan}"]
        assert "attention_bias" in found[f"bias {plan}"]


def test_the_first_token_reaches_the_last_output():
    plans = ["tp_sp", "ulysses", "ring"]
    moved = run_ranks("tests.layers.traffic:influence_of_the_first_token", 3, plans, timeout_seconds=120)[-1]
    assert moved["tp_sp"] > 1e-6
    for plan in plans:
        assert moved[plan] == pytest.approx(moved["tp_sp"], rel=1e-9), plan
