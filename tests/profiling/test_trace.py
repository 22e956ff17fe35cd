"""Traces of real layers: exact polynomials, the closed forms, two linked layers, and the shipped files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.costmodel.shape import ModelShape
from tests.ranks import run_ranks

GPT = ModelShape(128, 2, 8, 512, 1000, num_query_groups=4, dtype="fp32")


def test_traces_agree_with_closed_forms():
    """At P = 64 too, with stored scores and without; what is sent to the last byte and call."""
    wide = ["tp_sp", "ulysses/tp_sp"]
    cases = [(2, True, ["tp_sp", "ring"]), (4, False, ["usp", "tp_sp/streamed"])]
    found = run_ranks("tests.profiling.traced:agreements", 1, GPT, cases, timeout_seconds=200)[0]
    assert [len(of_case) for of_case in found] == [2, 2]
    assert not any(faults for of_case in found for faults in of_case.values()), found
    large = ModelShape(8192, 80, 64, 28672, 32000, gated_mlp=True, add_bias=False, rms_norm=True, rotary=True)
    of_many = run_ranks("tests.profiling.traced:agreements", 1, large, [(64, False, wide)], timeout_seconds=200)[0][0]
    assert len(of_many) == 2 and not any(of_many.values()), of_many


def test_parts_put_together_bound_linked_layers():
    options = ["tp_sp", "ulysses"]
    found = run_ranks("tests.profiling.traced:linked_peaks", 1, GPT, 2, options, 1024, timeout_seconds=400)[0]
    assert len(found) == 2
    for option, (real, composed) in found.items():
        assert 0.97 < composed / real < 1.3, (option, real, composed)


def test_mixed_plans_are_predicted_with_the_buffer_that_one_layer_makes_for_all():
    """On 8 ranks it is a fifth of what such a stack holds: without it, predictions would be 20 % under."""
    shape = replace(GPT, hidden_size=256, num_layers=4, num_attention_heads=8, num_query_groups=8, dtype="bf16")
    plans = ["ulysses+full*3,tp_sp", "metp+full*3,tp_sp+full", "tp_sp/streamed,metp*3", "ulysses/tp_sp*2,ring*2"]
    found = run_ranks("tests.profiling.traced:mixed_peaks", 1, shape, 8, False, plans, 4096, timeout_seconds=400)[0]
    assert len(found) == 4
    for plan, (real, predicted) in found.items():
        assert 0.99 < predicted / real < 1.1, (plan, real, predicted)


@pytest.mark.parametrize("name", ["llama-2-7b-p8-h200.cost.json", "gpt-13b-p2-cpu-2core.cost.json"])
def test_shipped_traces_are_current(name):
    found = run_ranks("tests.profiling.traced:shipped_counts", 1, name, "attention", "ulysses", 16_384)[0]
    assert len(found) == 4
    for what, (then, now) in found.items():
        assert then == pytest.approx(now, rel=1e-12), what


def test_what_is_no_polynomial_is_said():
    from paradyse_megatron.profiling.exact import exact_polynomials

    lengths = [8, 16, 24, 32, 40]
    rows = [[3 * s * s + s // 2 + 7, 5] for s in lengths]
    assert exact_polynomials(lengths, rows, "x") == [Polynomial(7.0, 0.5, 3.0), Polynomial(5.0)]
    rows[4][0] += 1
    with pytest.raises(ValueError, match="x: 4828 at 40 tokens is not on the polynomial"):
        exact_polynomials(lengths, rows, "x")
    with pytest.raises(ValueError, match="depends on the length"):
        exact_polynomials(lengths, [*rows[:4], [1]], "x")
