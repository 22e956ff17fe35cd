"""`--transformer-impl transformer_engine`, around a stand-in on CPU (see `tests.stand_ins`), not Transformer Engine."""

from __future__ import annotations

import pytest

from tests.layers.equality import mixed_plans
from tests.ranks import run_ranks

WORKERS = "tests.layers.te_workers"
PLANS = ["tp_sp", "ulysses", "ring/streamed", "usp+full", "upipe", "metp", *mixed_plans(3, seed=7)]


@pytest.fixture(scope="module")
def one_rank():
    """On one rank, stock models of the stand-in's layers included."""
    return run_ranks(f"{WORKERS}:on_one_rank", 1, PLANS[:3], timeout_seconds=200)[0]


@pytest.fixture(scope="module")
def two_ranks(one_rank):
    """Against those."""
    return run_ranks(f"{WORKERS}:on_several_ranks", 2, one_rank["references"], PLANS, timeout_seconds=300)


def test_the_stand_in_computes_what_megatrons_local_layers_compute(one_rank):
    assert len(one_rank["of the stand-in"]) == 3
    assert max(one_rank["of the stand-in"].values()) <= 1e-10


def test_every_plan_matches_the_unsharded_stock_model(one_rank, two_ranks):
    assert len(one_rank["of plans"]) == 6 * 3 and len(two_ranks[0]["of plans"]) == 6 * len(PLANS)
    found = [*one_rank["of plans"].items(), *two_ranks[0]["of plans"].items()]
    assert not [(key, error) for key, error in found if not error <= 1e-10]


def test_weight_gradients_added_to_main_grad_by_one_micro_batch_drop_none_of_the_next(two_ranks):
    found = two_ranks[0]["of windows"]
    assert len(found) == 7 * (len(PLANS) - 1) // 2
    assert not {key: error for key, error in found.items() if not error <= 1e-5}


def test_checkpoints_have_the_stock_models_keys(one_rank, two_ranks):
    for found in (one_rank, *two_ranks):
        assert len(found["keys"]) == 6 and all(found["keys"].values())
