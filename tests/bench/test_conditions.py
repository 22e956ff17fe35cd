"""What a result file says of where it comes from."""

from __future__ import annotations

import sys

from paradyse_megatron.bench.conditions import conditions


def test_a_command_is_told_without_the_folders_of_a_machine(monkeypatch, tmp_path):
    written = [
        "paradyse",
        "bench",
        "planner",
        "--out",
        str(tmp_path / "planner.json"),
        "--model",
        "a/b.yaml",
    ]
    monkeypatch.setattr(sys, "argv", written)
    assert conditions()["command"] == "paradyse bench planner --out planner.json --model a/b.yaml"
