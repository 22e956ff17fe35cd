"""The trace: its keys, what a killed or resumed run leaves in it, and the summary at the end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from paradyse_megatron.report.summary import buckets, mean_loss, print_summary, tokens_per_second
from paradyse_megatron.runtime.trace import TraceFile, TraceLine, read_trace

KEYS = (
    "iteration microbatch seq_length padded_length plan predicted_ms measured_ms predicted_bytes measured_bytes "
    "decision_us loss rank"
).split()
LINE = TraceLine(1, 0, 100, 104, "tp_sp", 5.0, 10.0, 1000, 900, 3.0, 2.0, 0)


def test_a_line_has_the_keys_that_scripts_rely_on(tmp_path):
    TraceFile(tmp_path / "deep" / "trace.jsonl").append(LINE)
    (text,) = (tmp_path / "deep" / "trace.jsonl").read_text().splitlines()
    assert list(json.loads(text)) == KEYS
    assert read_trace(tmp_path / "deep" / "trace.jsonl") == [LINE]


def test_resuming_forgets_what_will_be_done_again(tmp_path):
    file = TraceFile(tmp_path / "trace.jsonl")
    for iteration in (1, 2, 3):
        file.append(replace(LINE, iteration=iteration))
    file.forget_after(2)
    assert [line.iteration for line in read_trace(file.path)] == [1, 2]


def test_a_line_cut_short_by_a_kill_is_left_out(tmp_path):
    path = tmp_path / "trace.jsonl"
    TraceFile(path).append(LINE)
    path.write_text(path.read_text() + '{"iteration": 2, "micro')
    assert read_trace(path) == [LINE]


def test_what_is_no_trace_is_refused_with_its_line(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"iteration": 1}\n')
    with pytest.raises(ValueError, match="Line 1 of the trace"):
        read_trace(path)
    with pytest.raises(ValueError, match="cannot be read"):
        read_trace(tmp_path / "nothing")


def test_lengths_are_grouped_by_octave():
    lines = [replace(LINE, padded_length=length) for length in (128, 129, 256, 257)]
    assert {bounds: len(members) for bounds, members in buckets(lines).items()} == {
        (65, 128): 1, (129, 256): 2, (257, 512): 1}  # fmt: skip


def test_replicas_run_at_the_same_time():
    two_ranks = [LINE, replace(LINE, rank=2)]
    assert tokens_per_second(two_ranks) == pytest.approx(2 * 100 / 0.010)
    assert tokens_per_second([replace(LINE, measured_ms=None)]) is None


def test_unknown_losses_do_not_count():
    assert mean_loss([LINE, replace(LINE, loss=None), replace(LINE, loss=4.0)]) == 3.0
    assert mean_loss([replace(LINE, loss=None)]) is None


def test_the_summary_says_what_was_learned_and_planned(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = [replace(LINE, loss=5.0 - step, plan="ring" if step else "tp_sp") for step in range(5)]
    print_summary(lines, tmp_path / "trace.jsonl")
    printed = capsys.readouterr().out
    assert "5.000 -> 1.000" in printed and "ring  x4" in printed and "2 plans" in printed
    assert "decision 3.0 us (median), 0.030 % of the time" in printed
    print_summary([], tmp_path / "trace.jsonl")
    assert "no micro-batch" in capsys.readouterr().out
