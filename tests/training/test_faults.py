"""One rank that is not like the others: the run ends within a minute, in one sentence that names rank and cause."""

from __future__ import annotations

import time

import pytest

from tests.training.runs import Training, train

LIMIT_SECONDS = 60
LAUNCHER = "tests.training.tampered"
CASES = {
    "cut_file": ("--train-iters 4", "paradyse: rank 1: ", "cut.json"),
    "other_costs": ("--train-iters 4", "costs at --seq-length", "rank 1 has"),
    "other_budget": ("--train-iters 4", "rank 1 has 1073741824", "budget bytes"),
    "other_plan": ("--train-iters 100000 --paradyse-plan tp_sp", "Rank 1 followed other plans, by iteration", "rank 0"),
}


@pytest.mark.parametrize("fault", CASES)
def test_the_sentence_names_rank_and_cause(corpus, tmp_path, fault):
    flags, *parts = CASES[fault]
    with Training(corpus, tmp_path, f"{flags} --fault {fault}", launcher=LAUNCHER) as run:
        run.wait_for_output("paradyse: rank ")
        begin = time.monotonic()
        result = run.finish(LIMIT_SECONDS)
        assert time.monotonic() - begin < LIMIT_SECONDS and result.status == 2
    said = [line for line in result.output.splitlines() if line.startswith("paradyse: rank ")]
    assert said and all(part in line for part in parts for line in said), said
    assert "Traceback" not in result.output


def test_with_a_skewed_clock_the_run_is_the_same(corpus, tmp_path):
    flags = "--train-iters 3 --paradyse-memory-budget 5MiB"
    right = train(corpus, tmp_path / "right", flags)
    with Training(corpus, tmp_path / "skewed", f"{flags} --fault skewed_clock", launcher=LAUNCHER) as run:
        skewed = run.finish()
    assert skewed.status == 0 and len(skewed.trace) == 12 and len(right.plans) > 1
    fields = "iteration", "seq_length", "padded_length", "plan", "loss", "predicted_ms"
    for mine, theirs in zip(skewed.trace, right.trace, strict=True):
        assert [getattr(mine, field) for field in fields] == [getattr(theirs, field) for field in fields]


def test_a_skewed_clock_parts_nobody_even_with_feedback(corpus, tmp_path):
    """Ranks compare what they decide by after every iteration, and this one brings times a thousand times too long."""
    flags = "--train-iters 6 --paradyse-feedback --fault skewed_clock"
    with Training(corpus, tmp_path, flags, launcher=LAUNCHER) as run:
        result = run.finish()
    assert result.status == 0, result.output[-2000:]
    assert "paradyse: iteration 1: feedback: " in result.output and len(result.trace) == 24
