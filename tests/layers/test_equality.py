"""Whatever the plan, loss and every gradient equal those of the unsharded stock model."""

from __future__ import annotations

import pytest

from tests.layers.equality import (
    CASES_OF_WINDOWS,
    FAMILIES_WITH_FEW_KEYS,
    FAMILY_NAMES,
    HEAD_PLANS,
    STREAMED_PLANS,
    UNIFORM,
    mixed_plans,
)
from tests.ranks import run_ranks

WORKERS = "tests.layers.equality"
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
"""Relative L2 per tensor: rounding of another order of summation, nothing else."""


@pytest.fixture(scope="module")
def references():
    """Loss and gradients on one rank, of stock megatron-core."""
    return run_ranks(f"{WORKERS}:references", 1)[0]


def _plans_of(num_ranks: int) -> dict[str, list[str]]:
    """Every uniform plan and ten seeded mixed ones for each family, in both precisions, with batch 1 and 3 in turn."""
    plans = UNIFORM + STREAMED_PLANS + HEAD_PLANS + mixed_plans(10, seed=num_ranks)
    chosen = {
        f"{family} {case} {dtype}": plans[(number + offset) % 2 :: 2]
        for family in FAMILY_NAMES
        for number, dtype in enumerate(("float64", "float32"))
        for offset, case in enumerate(("one", "three"))
    }
    few_keys = FAMILIES_WITH_FEW_KEYS if num_ranks in (2, 4) else []  # 3 ranks cannot share 2 key/value heads evenly
    chosen |= {
        f"{family} {case} float64": ["tp_sp", "ulysses", "ring", *HEAD_PLANS, *mixed_plans(1, num_ranks, few_keys=True)]
        for family, case in zip(few_keys, ("three", "one"), strict=False)
    }
    return chosen | {
        f"{family} {case} float64": ["tp_sp", "ulysses", "ring", "usp", "upipe", "metp"]
        for family in FAMILY_NAMES
        for case in ("tiny", "masked")
    }


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_uniform_and_mixed_plans_match_the_unsharded_model(references, num_ranks):
    plans_of = _plans_of(num_ranks)
    found = run_ranks(f"{WORKERS}:errors", num_ranks, references, plans_of, timeout_seconds=400)[0]
    assert len(found) == sum(len(set(plans)) for plans in plans_of.values()) >= 3 * 2 * 22
    wrong = {key: error for key, error in found.items() if not error <= TOLERANCE[key.split()[2]]}
    assert not wrong


def test_eight_ranks_match_the_unsharded_model(references):
    plans_of = {
        "gpt three float64": ["tp_sp", "ulysses", "ring", "upipe", "metp", *mixed_plans(2, seed=8)],
        "grouped one float64": ["tp_sp", "ulysses", "usp", "upipe"],  # sub-groups of two; four ranks share a head
    }
    found = run_ranks(f"{WORKERS}:errors", 8, references, plans_of, timeout_seconds=400)[0]
    assert len(found) == 7 + 4
    assert max(found.values()) <= TOLERANCE["float64"]


def test_one_accumulation_window_may_mix_plans(references):
    found = run_ranks(f"{WORKERS}:window_errors", 2, timeout_seconds=300)[0]
    assert len(found) == len(FAMILY_NAMES) * len(CASES_OF_WINDOWS)
    assert max(found.values()) <= TOLERANCE["float64"], found
