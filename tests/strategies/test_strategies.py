"""Strategies on plain tensors, without Megatron: output and every gradient equal those of one device."""

from __future__ import annotations

import pytest

from tests.ranks import run_ranks

WORKERS = "tests.strategies.workers"


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize(("num_groups", "batch", "expanded_gradient"), [(12, 3, False), (12, 1, True)])
def test_attention_equals_one_device(num_ranks, num_groups, batch, expanded_gradient):
    for found in run_ranks(
        f"{WORKERS}:attention_errors", num_ranks, 3, batch, 24, num_groups, "float64", expanded_gradient
    ):
        assert len(found) >= 3 * 5
        assert max(found.values()) < 1e-12, found


def test_ring_takes_fewer_key_value_heads_than_ranks():
    found = run_ranks(f"{WORKERS}:attention_errors", 4, 1, 2, 4, 1, "float64", False)[0]
    assert {key.split(".")[0] for key in found} >= {"ring"}
    assert max(found.values()) < 1e-12, found


@pytest.mark.parametrize("gated", [False, True])
def test_mlp_equals_one_device(gated):
    for found in run_ranks(f"{WORKERS}:mlp_errors", 3, 5, 2, gated, "float64"):
        assert len(found) == 2 * 5
        assert max(found.values()) < 1e-12, found


def test_parameters_survive_and_gradients_add_up():
    assert run_ranks(f"{WORKERS}:gradients_of_one_parameter_used_twice", 3) == [True] * 3


def test_ring_error_in_half_precision_does_not_grow_with_ranks():
    """The running result is fp32: a bf16 round trip per hop would make the error grow with P."""
    errors = [max(run_ranks(f"{WORKERS}:half_precision_error", ranks)) for ranks in (1, 2, 4, 8)]
    assert errors[0] > 1e-4
    assert max(errors) <= 1.5 * errors[0], errors
