"""What real layers hold at lengths that no test could run, traced on fake tensors."""

from __future__ import annotations

from tests.ranks import run_ranks

OPTIONS = ["tp_sp", "ring", "metp", "metp+full"]


def test_metp_holds_at_most_half_of_tp_sp():
    """A 7B layer at 131,072 tokens on 8 ranks, saved and workspace together; 32 and 8 key/value heads."""
    by_groups = run_ranks("tests.layers.layer_trace:held_bytes", 1, OPTIONS, [32, 8], 131_072, 8)[0]
    assert by_groups.keys() == {32, 8}
    for found in by_groups.values():
        saved, peak = ({option: found[option][which] for option in OPTIONS} for which in (0, 1))
        assert peak["metp"] <= peak["tp_sp"] / 2 and peak["metp"] <= 0.6 * peak["ring"], found
        assert 0 < saved["metp"] <= saved["ring"] / 2, found
        assert saved["metp+full"] < 2**20, found  # besides the layer's input, which is counted out
