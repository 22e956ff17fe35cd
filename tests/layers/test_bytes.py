"""What real layers hold at lengths that no test could run, traced on fake tensors."""

from __future__ import annotations

import pytest

from tests.costmodel.test_activations import MEASURED
from tests.layers.layer_trace import Case
from tests.ranks import run_ranks

OPTIONS = ["tp_sp", "ring", "metp", "metp+full", "ulysses", "ulysses+selective", "upipe", "upipe+selective"]
LARGE = [Case("7b", 32, "bf16", 8, option, 131_072) for option in OPTIONS]
LARGE += [Case("7b", 8, "bf16", 8, option, 131_072) for option in OPTIONS[:4]]
SMALL = [Case(*key) for key in MEASURED if "selective" in key[-1] or key[-1] in ("ring", "usp")][::3]


@pytest.fixture(scope="module")
def traced():
    """Saved bytes and peak of every case; one launch for all tests."""
    return run_ranks("tests.layers.layer_trace:held_bytes", 1, LARGE + SMALL, timeout_seconds=300)[0]


@pytest.mark.parametrize("num_groups", [32, 8])
def test_metp_holds_at_most_half_of_tp_sp(traced, num_groups):
    """A 7B layer at 131,072 tokens on 8 ranks, saved and workspace together; 32 and 8 key/value heads."""
    found = {option: traced[Case("7b", num_groups, "bf16", 8, option, 131_072)] for option in OPTIONS[:4]}
    saved, peak = ({option: found[option][which] for option in found} for which in (0, 1))
    layer_input = 131_072 // 8 * 4096 * 2
    assert peak["metp"] <= peak["tp_sp"] / 2 and peak["metp"] <= 0.6 * peak["ring"], found
    assert 0 < saved["metp"] <= saved["ring"] / 2, found
    assert layer_input <= saved["metp+full"] < layer_input + 2**20, found


def test_selective_recompute_drops_a_share_of_what_attention_keeps(traced):
    """At least the attention output [t, b, a d] and its log-sum-exp in fp32; in ulysses what was rotated as well."""
    saved = {option: traced[Case("7b", 32, "bf16", 8, option, 131_072)][0] for option in OPTIONS}
    output, lse = 131_072 // 8 * 4096 * 2, 131_072 // 8 * 32 * 4
    assert saved["upipe"] - saved["upipe+selective"] == output + lse
    rotated = 2 * output
    assert saved["ulysses"] - saved["ulysses+selective"] >= output + lse + rotated


def test_measured_rows_of_the_cost_model_are_what_layers_hold_today(traced):
    assert len(SMALL) >= 7
    for case in SMALL:
        of_table, found = MEASURED[case[:-1]], [num_bytes / 1024 for num_bytes in traced[case]]
        assert found == pytest.approx(of_table, rel=0.03), case  # the oldest rows' peak is without the input
