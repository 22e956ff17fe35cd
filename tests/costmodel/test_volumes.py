"""The closed forms of DESIGN section 4, by their own numbers and by the crossover they imply."""

import dataclasses
from pathlib import Path

import pytest

from paradyse_megatron.costmodel import volumes
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.volumes import Sent
from paradyse_megatron.layouts.zigzag import contiguous_positions, zigzag_positions
from paradyse_megatron.planner.option import Option, all_options

MODELS = Path(__file__).parents[2] / "configs" / "models"
GROUPED = ModelShape(
    hidden_size=48,
    num_layers=1,
    num_attention_heads=24,
    num_query_groups=12,
    head_dim=4,
    ffn_hidden_size=96,
    vocab_size=96,
    gated_mlp=True,
    add_bias=False,
)
LLAMA_3_70B = ModelShape(
    hidden_size=8192,
    num_layers=80,
    num_attention_heads=64,
    num_query_groups=8,
    head_dim=128,
    ffn_hidden_size=28672,
    vocab_size=128256,
    gated_mlp=True,
    add_bias=False,
)


@pytest.mark.parametrize("group_size", [2, 3, 4, 6, 12])
def test_the_table(group_size):
    """Forward counts straight from the table, with t = s / P, b = 3."""
    P, t, b, h, a, g, d, f = group_size, 10, 3, 48, 24, 12, 4, 96
    attention_weights, mlp_weights = (a + 2 * g) * d * h + a * d * h, 3 * h * f
    assert volumes.tp_sp(GROUPED, P, t, b).forward == 2 * t * b * h * (P - 1)
    assert volumes.tp_sp(GROUPED, P, t, b).backward == 1.5 * 2 * t * b * h * (P - 1)
    weights = attention_weights * (P - 1) // P
    exchanged = (2 * a + 2 * g) * d * t * b * (P - 1) // P
    assert volumes.ulysses(GROUPED, P, t, b) == Sent(weights + exchanged, 2 * weights + exchanged, 4, 6)
    blocks = 2 * g * d * t * b * (P - 1)
    assert volumes.ring_hops(GROUPED, P, t, b) == Sent(blocks, 2 * blocks, P - 1, 2 * (P - 1))
    assert volumes.gathered_mlp(GROUPED, P, t, b) == Sent(
        mlp_weights * (P - 1) // P, 2 * mlp_weights * (P - 1) // P, 2, 4
    )
    assert volumes.streamed_mlp(GROUPED, P, t, b) == Sent(
        mlp_weights * (P - 1) // P, 2 * mlp_weights * (P - 1) // P, 2 * P, 4 * P
    )
    exchanged = volumes.zigzag_exchanges(GROUPED, P, t, b)
    assert volumes.metp(GROUPED, P, t, b) - exchanged == Sent(
        weights + blocks, 2 * (weights + blocks), 2 * P + P * (P - 1), 4 * P + 2 * P * (P - 1)
    )


@pytest.mark.parametrize(("group_size", "groups", "degree"), [(2, 12, 2), (8, 12, 4), (4, 2, 2), (6, 4, 2), (8, 1, 1)])
def test_usp_and_upipe_in_the_table(group_size, groups, degree):
    """Key/value heads fewer than ranks are copied where heads are exchanged; sub-groups are as large as fits both."""
    P, u, t, b, h, a, g, d = group_size, degree, 10, 3, 48, 24, groups, 4
    shape = dataclasses.replace(GROUPED, num_query_groups=g)
    weights = ((a + 2 * g) * d * h + a * d * h) * (P - 1) // P
    exchanged = (2 * a + 2 * max(g, P)) * d * t * b * (P - 1) // P
    inside, across = (2 * a + 2 * g) * d * t * b * (u - 1) // u, 2 * g * d * t * b * (P // u - 1)
    order = volumes.zigzag_exchanges(shape, P, t, b, subgroup_size=u)
    assert order == Sent() if u == P else 0 < order.forward <= 2 * t * b * h
    assert volumes.usp(shape, P, t, b) - order == Sent(
        weights + inside + across,
        2 * weights + inside + 2 * across,
        2 + 2 * (u > 1) + P // u - 1,
        4 + 2 * (u > 1) + 2 * (P // u - 1),
    )
    if max(g, P) % min(g, P) == 0:
        calls = 2 * a // P  # two for each own head
        hidden = volumes.upipe_hidden(shape, P, t, b)
        assert volumes.ulysses(shape, P, t, b) == Sent(weights + exchanged, 2 * weights + exchanged, 4, 6)
        forward = weights + exchanged
        assert volumes.upipe(shape, P, t, b) == Sent(forward, 2 * forward, 2 + calls, 4 + calls)
        assert hidden.forward == exchanged * (calls - 2) // calls and hidden.backward_calls == calls - 2


def test_biases_are_gathered_again_only_where_the_projection_is_computed_again():
    shape = dataclasses.replace(GROUPED, add_bias=True)
    more = volumes.upipe(shape, 4, 8) - volumes.upipe(GROUPED, 4, 8)
    less = volumes.ulysses(shape, 4, 8) - volumes.ulysses(GROUPED, 4, 8)
    bias = (24 + 2 * 12) * 4 * 3 // 4
    assert less == Sent(bias, bias, 1, 1) and more == Sent(bias, 2 * bias, 1, 2)


def test_tp_sp_gathers_the_projection_where_ranks_share_key_value_heads():
    shape = dataclasses.replace(GROUPED, num_query_groups=2)
    projection = (24 + 4) * 4 * 10 * 3 * 3
    more = volumes.tp_sp_attention(shape, 4, 10, 3) - volumes.tp_sp(shape, 4, 10, 3)
    assert more == Sent(projection, projection, 1, 1)
    assert volumes.tp_sp_attention(shape, 2, 10, 3) == volumes.tp_sp(shape, 2, 10, 3)


@pytest.mark.parametrize("group_size", [2, 3, 4, 5, 8])
def test_ring_sends_exactly_the_tokens_that_change_their_rank(group_size):
    local_tokens, batch, hidden = 6, 3, GROUPED.hidden_size
    for rank in range(group_size):
        before = set(contiguous_positions(rank, group_size, local_tokens * group_size).tolist())
        after = set(zigzag_positions(rank, group_size, local_tokens * group_size).tolist())
        moved = volumes.zigzag_exchanges(GROUPED, group_size, local_tokens, batch, rank)
        assert moved == Sent(2 * len(before - after) * batch * hidden, 2 * len(after - before) * batch * hidden, 2, 2)
    of_all = [volumes.ring(GROUPED, group_size, local_tokens, batch, rank).forward for rank in range(group_size)]
    assert volumes.ring(GROUPED, group_size, local_tokens, batch).forward == max(of_all)
    place = GROUPED, group_size, local_tokens, batch
    rest = volumes.ring(*place, 0) - volumes.ring_hops(*place) - volumes.zigzag_exchanges(*place, 0)
    weights = GROUPED.attention_weights * (group_size - 1) // group_size
    assert rest == Sent(weights, 2 * weights, 2, 4)


def test_one_rank_sends_nothing():
    for option in all_options():
        assert volumes.layer(option, GROUPED, 1, 128) == Sent()


def test_full_recompute_sends_forward_twice():
    once = volumes.layer(Option("ring", "tp_sp"), GROUPED, 4, 8)
    again = volumes.layer(Option("ring", "tp_sp", "full"), GROUPED, 4, 8)
    assert again == Sent(
        once.forward, once.backward + once.forward, once.forward_calls, once.backward_calls + once.forward_calls
    )


def crossover(shape, group_size):
    """Length from which Ulysses with gathered weights sends less than TP+SP, by bisection on the counts alone."""

    def ulysses_sends_less(local_tokens):
        by_option = [
            volumes.layer(Option(*names), shape, group_size, local_tokens)
            for names in (("tp_sp", "tp_sp"), ("ulysses", "gathered"))
        ]
        tp_sp, ulysses = (sent.forward + sent.backward for sent in by_option)
        return ulysses < tp_sp

    below, above = 1, 2**24
    assert ulysses_sends_less(above) and not ulysses_sends_less(below)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if ulysses_sends_less(middle) else (middle, above)
    return above * group_size


def formula(shape, group_size):
    """s = 3 W / (10 h - 4 (a + g) d / P)."""
    heads = (shape.num_attention_heads + shape.num_query_groups) * shape.head_dim
    weights = shape.attention_weights + shape.mlp_weights
    return 3 * weights / (10 * shape.hidden_size - 4 * heads / group_size)


@pytest.mark.parametrize(
    ("shape", "length"),
    [
        (ModelShape.from_yaml(MODELS / "llama-3-8b.yaml"), 17_000),
        (LLAMA_3_70B, 33_000),
        (ModelShape.from_yaml(MODELS / "gpt-13b.yaml"), 4 * 5120),
    ],
)
def test_crossover_with_tp_sp_at_eight_ranks(shape, length):
    assert crossover(shape, 8) == pytest.approx(length, rel=0.02)
    assert crossover(shape, 8) == pytest.approx(formula(shape, 8), rel=1e-3)


def test_few_key_value_heads_favour_ring():
    """K/V travel less than the all-to-all moves exactly when (a + g) / (g P) > 1."""
    seen = set()
    for group_size in (2, 3, 4, 6, 12):
        exchanged = volumes.ulysses(GROUPED, group_size, 12) - volumes.gathered_weights(
            GROUPED.attention_weights, 0, group_size
        )
        ring_is_less = volumes.ring_hops(GROUPED, group_size, 12).forward < exchanged.forward
        assert ring_is_less == ((24 + 12) / (12 * group_size) > 1)
        seen.add(ring_is_less)
    assert seen == {True, False}
