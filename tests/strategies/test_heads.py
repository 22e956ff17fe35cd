"""Strategies that deal, share or chunk heads: output and every gradient equal those of one device."""

from __future__ import annotations

from typing import Any

import pytest

from paradyse_megatron.comm import exchange
from tests.ranks import run_ranks

WORKERS = "tests.strategies.head_workers"
HEADS = {
    1: [(6, 3)],
    2: [(12, 12), (12, 6), (12, 2), (12, 1)],
    3: [(12, 12), (12, 3), (12, 1)],
    4: [(12, 12), (24, 8), (12, 2), (12, 1)],
    6: [(12, 12), (12, 3), (12, 2), (12, 1)],
}
"""By number of ranks: query heads and key/value heads, as many as ranks, fewer, two and one among them."""


def cases_for(num_ranks: int) -> list[dict[str, Any]]:
    """Every strategy, with every number of chunks and every size of sub-groups; one sequence and three in turn."""
    ways = [{"strategy": "ulysses"}, {"strategy": "ring"}]
    ways += [{"strategy": "upipe", "num_chunks": wish} for wish in (1, 2, 3, 5, "fastest", "fewest_bytes")]
    ways += [{"strategy": "usp", "ranks_per_node": ranks} for ranks in (None, 1, 2, 3)]
    ways += [{"strategy": name, "recompute_core": True} for name in ("ulysses", "upipe", "usp")]
    return [
        {"num_heads": heads, "num_groups": groups, "batch": batch, "expanded": batch == 1, "bias": batch == 3, **way}
        for row, (heads, groups) in enumerate(HEADS[num_ranks])
        for column, way in enumerate(ways)
        for batch in [1 + 2 * ((row + column) % 2)]
    ]


@pytest.mark.parametrize("num_ranks", HEADS)
def test_attention_equals_one_device(num_ranks):
    cases = cases_for(num_ranks)
    by_rank = run_ranks(f"{WORKERS}:errors", num_ranks, cases, timeout_seconds=120)
    for found in by_rank:
        assert len(found) == len(cases) >= 12
        for case, errors in zip(cases, found, strict=True):
            assert len(errors) == 6 + case["bias"]
            assert max(errors.values()) < 1e-12, (case, errors)


def test_four_of_six_ranks_not_the_first_and_not_in_a_row():
    cases = [{"strategy": name, "num_heads": 16, "num_groups": 2} for name in ("ulysses", "upipe", "usp")]
    members = [1, 2, 4, 5]
    by_rank = run_ranks(f"{WORKERS}:some_ranks_errors", 6, members, cases)
    assert [rank for rank, found in enumerate(by_rank) if found] == members
    assert max(max(errors.values()) for rank in members for errors in by_rank[rank]) < 1e-12


def test_parameters_survive_and_gradients_add_up():
    names = ["ulysses", "usp", "upipe"]
    assert run_ranks(f"{WORKERS}:used_twice", 3, names) == [dict.fromkeys(names, True)] * 3


def test_frozen_tensors_have_no_gradient():
    choices = [["hidden"], ["key_norm", "qkv_weight"], ["proj_weight", "qkv_bias"]]
    for found in run_ranks(f"{WORKERS}:frozen", 2, choices):
        assert found == choices


@pytest.mark.parametrize("num_groups", [12, 4])
def test_upipe_keeps_a_fraction_of_what_ulysses_keeps(num_groups):
    """The output and its log-sum-exp, of q, k, v, output and context: 1.17 a to 4.17 a + 2 g a row of head size 6."""
    found = run_ranks(f"{WORKERS}:saved_bytes", 2, 12, num_groups, 512)[0]
    assert found["upipe"] < 0.36 * found["ulysses"]
    assert found["upipe"] == 512 // 2 * 12 * (6 + 1) * 4


def test_error_in_half_precision_does_not_grow_with_chunks():
    one, *more = run_ranks(f"{WORKERS}:half_precision_errors", 2, [1, 2, 3, "fewest_bytes"])[0]
    assert one > 1e-3
    assert max(more) < 1.2 * one


def test_a_preparation_has_to_name_its_parameters():
    assert "uses parameters without naming them" in run_ranks(f"{WORKERS}:unnamed_parameters", 1)[0]


def test_exchanges_run_beside_the_chunk_before_and_the_chunk_after_next(monkeypatch):
    events: list[str] = []

    class Recorded:
        def __init__(self, what, group):
            self.what = what
            events.append(f"start {what}")

        def wait(self):
            events.append(f"wait {self.what}")

        def take(self):
            return self.what

    monkeypatch.setattr(exchange, "Exchange", Recorded)

    def step(name):
        def run(chunk, coming=None):
            events.append(f"{name}{chunk}")
            return f"{name}{chunk}"

        return run

    exchange.there_and_back([0, 1, 2], None, step("begin"), step("middle"), step("end"))
    for chunk in (1, 2):
        assert events.index(f"start begin{chunk}") < events.index(f"middle{chunk - 1}") < events.index(f"middle{chunk}")
    assert events.index("start middle0") < events.index("begin2") < events.index("end0") < events.index("middle2")
    assert events.index("wait begin1") < events.index("begin2")  # what was sent is gone before more is made
    assert [event for event in events if event.startswith(("begin", "middle", "end"))] == [
        "begin0",
        "begin1",
        "middle0",
        "begin2",
        "end0",
        "middle1",
        "end1",
        "middle2",
        "end2",
    ]
