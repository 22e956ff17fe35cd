"""The chunked loss head: exact, bounded, and indifferent to how tokens and labels fall on ranks and chunks."""

from __future__ import annotations

import pytest

from tests.ranks import run_ranks
from tests.strategies.loss_head_workers import CASES

WORKERS = "tests.strategies.loss_head_workers"


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_losses_and_gradients_are_those_of_torch(num_ranks):
    for found in run_ranks(f"{WORKERS}:errors", num_ranks, timeout_seconds=90):
        assert len(found) == 3 * len(CASES) >= 48
        assert {key: error for key, error in found.items() if not error <= 1e-12} == {}


@pytest.fixture(scope="module")
def further():
    """What two ranks found besides, by check."""
    return run_ranks(f"{WORKERS}:further", 2, timeout_seconds=90)


def test_losses_and_gradients_are_those_of_megatron(further):
    for rank in further:
        found = rank["errors_against_megatron"]
        assert len(found) == 3 * len(CASES)
        assert {key: error for key, error in found.items() if not error <= 1e-6} == {}


def test_chunking_adds_nothing_to_the_rounding_of_half_precision(further):
    for rank in further:
        for name, (chunked, whole) in rank["half_precision_errors"].items():
            assert 1e-4 < chunked < 1.2 * whole, name


def test_large_logits_cost_no_precision(further):
    for rank in further:
        found = rank["large_logit_errors"]
        assert found["losses"] < 1e-6 and found["weight"] < 1e-6
        assert found["hidden"] < 5e-5  # a sum of large products that cancel


def test_neither_all_tokens_nor_all_logits_are_ever_there(further):
    for rank in further:
        found = rank["largest_tensors"]
        assert found["operations"] > 100
        assert found["largest"] <= found["shard"] < found["all logits"] < found["all tokens x h"]


@pytest.mark.parametrize("what", ["frozen weight", "hidden without gradient", "flag", "evaluation", "infinities"])
def test_particular_uses(further, what):
    assert all(rank["particular_uses"][what] for rank in further)
