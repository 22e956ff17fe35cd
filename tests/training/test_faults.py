"""One rank that is not like the others: the run ends within a minute, in one sentence that names rank and cause."""

from __future__ import annotations

import time

import pytest

from tests.training.runs import Training

LIMIT_SECONDS = 60
CASES = {
    "cut_file": ("--train-iters 4", "paradyse: rank 1: ", "cut.json"),
    "other_budget": ("--train-iters 4", "rank 1 has 1073741824", "budget bytes"),
    "other_plan": ("--train-iters 100000 --paradyse-plan tp_sp", "Rank 1 followed other plans, by iteration", "rank 0"),
}


@pytest.mark.parametrize("fault", CASES)
def test_the_sentence_names_rank_and_cause(corpus, tmp_path, fault):
    flags, *parts = CASES[fault]
    with Training(corpus, tmp_path, f"{flags} --fault {fault}", launcher="tests.training.tampered") as run:
        run.wait_for_output("paradyse: rank ")
        begin = time.monotonic()
        result = run.finish(LIMIT_SECONDS)
        assert time.monotonic() - begin < LIMIT_SECONDS and result.status == 2
    said = [line for line in result.output.splitlines() if line.startswith("paradyse: rank ")]
    assert said and all(part in line for part in parts for line in said), said
    assert "Traceback" not in result.output


def test_a_skewed_clock_parts_nobody_even_with_feedback(corpus, tmp_path):
    """Ranks compare what they decide by after every iteration, and this one brings times a thousand times too long."""
    flags = "--train-iters 6 --paradyse-feedback --fault skewed_clock"
    with Training(corpus, tmp_path, flags, launcher="tests.training.tampered") as run:
        result = run.finish()
    assert result.status == 0, result.output[-2000:]
    assert "paradyse: iteration 1: feedback: " in result.output and len(result.trace) == 24
