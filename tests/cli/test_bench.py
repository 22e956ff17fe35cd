"""`paradyse bench`: the figures of conversions, and what it refuses."""

from __future__ import annotations

import json

import pytest

from paradyse_megatron.cli.main import main
from paradyse_megatron.comm import host

HALVES = 2 * 3 * 2 * 2
"""Models, group sizes, conversions, directions."""


@pytest.mark.skipif(isinstance(host.extension(), str), reason="the host extension is not built")
def test_conversions_are_compared_side_by_side(tmp_path, capsys):
    out = tmp_path / "conversions.json"
    asked = "bench conversions --seq-length 64 --repetitions 1 --max-threads 2 --json --out"
    status = main([*asked.split(), str(out)])
    content = json.loads(capsys.readouterr().out)
    assert status in (0, 1)
    assert {"schema": 1, **content} == json.loads(out.read_text())
    assert {"date", "machine", "versions", "command"} <= content.keys()
    assert content["host_over_torch_speedup_median"] > 0 and content["host_fraction_of_memcpy"] > 0
    single = [row for row in content["table"] if row["num_threads"] == 1]
    assert len(single) == HALVES and {row["group_size"] for row in single} == {2, 4, 8}
    # q, k and v of 8 tokens: only packed, as their heads are evenly spaced in what comes; the context only unpacked.
    assert content["bytes_7B_P8_forward"] == 2 * 2 * 8 * (3 + 1) * 4096


def test_batch_orders_are_compared(capsys):
    assert main(["bench", "batches"]) == 0
    assert "window" in capsys.readouterr().out


def test_deciding_is_compared_with_plans_set_beforehand(capsys):
    assert main("bench decisions --documents 3 --rounds 1 --json".split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num_steps"] == 3 and found["num_plans"] >= 2
    assert 0 < found["decision_us_median"] < found["controller_us_median"] < 1e3 * found["step_ms_median"]
    assert 0 < found["controller_share"] <= found["controller_share_worst_step"] < 1
    assert found["decided_over_preset"] > 0 and found["preset_over_itself"] > 0
    assert main("bench decisions --documents 0".split()) == 2
    assert "--documents must be at least 1" in capsys.readouterr().err


def test_what_cannot_be_shared_is_refused(capsys):
    assert main(["bench", "conversions", "--seq-length", "100"]) == 2
    assert "give a multiple of 8" in capsys.readouterr().err


def test_without_the_extension_it_says_so(capsys, monkeypatch):
    monkeypatch.setattr(host, "extension", lambda: "no compiler")
    assert main(["bench", "conversions"]) == 2
    assert "cannot be measured: no compiler" in capsys.readouterr().err
