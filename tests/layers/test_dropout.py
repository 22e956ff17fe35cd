"""Dropout: other masks on other tokens, the same masks when backward computes a layer or its attention again."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.layers.dropout import ATTENTION_PLANS, CASES, HIDDEN_PLANS
from tests.layers.models import NUM_LAYERS


@pytest.fixture(scope="module")
def by_rank(findings):
    return findings(2)["dropout"]


def test_hidden_dropout_is_the_same_under_every_plan(by_rank):
    """Masks follow the tokens of the unified layout, which all strategies share: so do loss and gradients."""
    for found in by_rank:
        assert list(found["hidden"]) == HIDDEN_PLANS
        assert max(error for _, error in found["hidden"].values()) < 1e-10


def test_shards_of_tokens_have_masks_of_their_own(by_rank):
    first, second = (found["hidden"]["ulysses"][0] for found in by_rank)
    assert len(first) == len(second) == len(CASES) * (1 + 2 * NUM_LAYERS)
    assert not set(first) & set(second)


@pytest.mark.parametrize(
    ("kind", "plan", "num_replayed"),
    [
        *(("hidden", plan, 2 * NUM_LAYERS) for plan in HIDDEN_PLANS if plan.endswith("+full")),
        *(("hidden", plan, 0) for plan in HIDDEN_PLANS if plan.endswith("+selective") and "," not in plan),
        *(("attention", plan, 3 * NUM_LAYERS) for plan in ATTENTION_PLANS if plan.endswith("+full")),
        *(("attention", plan, NUM_LAYERS) for plan in ATTENTION_PLANS if plan.endswith("+selective")),
    ],
)
def test_recomputation_draws_the_masks_of_forward_again(by_rank, kind, plan, num_replayed):
    for found in by_rank:
        drawn, forward = found[kind][plan][0], found[kind]["tp_sp"][0]
        replayed = drawn[len(forward) :]
        assert drawn[: len(forward)] == forward
        assert len(replayed) == len(CASES) * num_replayed and Counter(replayed) <= Counter(forward)


def test_attention_dropout_with_recomputation_changes_nothing(by_rank):
    for found in by_rank:
        assert list(found["attention"]) == ATTENTION_PLANS
        assert max(error for _, error in found["attention"].values()) < 1e-10


def test_attention_dropout_is_refused_where_it_would_be_left_out(by_rank):
    for found in by_rank:
        assert "'ulysses' does not work with this layer: attention dropout is not available" in found["refusal"]
