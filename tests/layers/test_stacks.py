"""Hybrid stacks and mixtures of experts: whatever the plan, loss and every gradient equal those of the stock model."""

from __future__ import annotations

import pytest

from tests.ranks import run_ranks

WORKERS = "tests.layers.stacks"
TOLERANCE = 1e-10
"""Relative L2 per tensor, in fp64."""

PLANS = {
    "pairs": ["tp_sp", "ulysses", "metp;head=chunked", "ring,ulysses/streamed,tp_sp,usp/gathered,upipe+full,metp+full"],
    "apart": ["ring;head=chunked", "ring/streamed+full,ulysses,tp_sp/gathered,upipe/gathered+full,tp_sp,ring"],
    "experts in a pattern": ["ulysses", "ring+full,metp,upipe,ring/streamed"],
    "experts": ["ulysses/tp_sp", "ring/tp_sp+full,tp_sp,metp/tp_sp"],
    "experts in some layers": ["ring/gathered,ulysses/tp_sp+full,upipe/streamed"],
}


@pytest.fixture(scope="module")
def references():
    """Loss and gradients on one rank."""
    return run_ranks(f"{WORKERS}:references", 1)[0]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_stacks_match_the_unsharded_stock_model(references, num_ranks):
    found = run_ranks(f"{WORKERS}:errors", num_ranks, references, PLANS, timeout_seconds=200)[0]
    assert len(found) == sum(len(plans) for plans in PLANS.values())
    assert not {key: error for key, error in found.items() if not error <= TOLERANCE}
