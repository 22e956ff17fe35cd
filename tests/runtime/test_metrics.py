"""The values that go to TensorBoard and W&B, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paradyse_megatron.runtime import metrics as module
from paradyse_megatron.runtime.metrics import KEYS, metrics, plan_changes
from tests.runtime.test_trace import LINE

LINES = [
    replace(LINE, seq_length=100, padded_length=100, plan="tp_sp", predicted_ms=12.0, measured_ms=10.0, loss=4.0),
    replace(LINE, seq_length=200, padded_length=300, plan="ring*1,tp_sp*3", predicted_ms=15.0, measured_ms=30.0,
            predicted_bytes=1200, measured_bytes=800, decision_us=9.0),
    replace(LINE, seq_length=300, padded_length=300, plan="ring*1,tp_sp*3", measured_ms=None, loss=None),
]  # fmt: skip


def test_every_value():
    found = metrics(LINES, plan_before="ring")
    assert found.keys() == {f"paradyse/{key}" for key in [*KEYS, "share/tp_sp", "share/ring"]}
    expected = {
        "tokens_per_second": 1e3 * 300 / 40,
        "measured-ms": 20,
        "predicted-ms": (12 + 15 + 5) / 3,
        "predict-error-pct": (20 + 50) / 2,
        "measured-peak-bytes": 900,
        "predicted-peak-bytes": 1200,
        "memory-error-pct": (100 / 9 + 50 + 100 / 9) / 3,
        "padding-pct": 100 * 100 / 700,
        "seq-length-mean": 200,
        "seq-length-max": 300,
        "plan_changes": 2,
        "plans": 2,
        "decision-us": 3,
        "loss": (4 + 2) / 2,
        "share/ring": (1 / 4 + 1 / 4) / 3,
        "share/tp_sp": (1 + 3 / 4 + 3 / 4) / 3,
    }
    assert found.keys() == {f"paradyse/{key}" for key in expected}
    for key, value in expected.items():
        assert found[f"paradyse/{key}"] == pytest.approx(value), key


def test_what_is_not_known_is_left_out():
    lines = [replace(LINE, predicted_ms=None, predicted_bytes=None, measured_ms=None, measured_bytes=None, loss=None)]
    found = metrics(lines)
    assert found["paradyse/plans"] == 1 and not any("measured" in key or "loss" in key for key in found)
    assert metrics([]) == {}


def test_changes_of_plan():
    assert plan_changes(["a", "a", "b", "a"]) == 2
    assert plan_changes(["a", "a"], before="b") == 1
    assert plan_changes([]) == plan_changes([], before="b") == 0


def test_the_table_lists_every_key():
    table = [line for line in (module.__doc__ or "").splitlines() if line.startswith("| `")]
    listed = [line.split("`")[1] for line in table]
    assert listed == [*KEYS, "share/OPTION"]
