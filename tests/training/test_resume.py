"""A run that is killed in the middle and resumed is, to the last bit, the run that was not."""

from __future__ import annotations

import os
import signal
import time

from tests.training.runs import Training, is_running, kill, train

ITERATIONS, SAVE_INTERVAL, MICROBATCHES = 10, 4, 4
FLAGS = (
    "--hidden-dropout 0.1 --paradyse-memory-budget 7MiB --ckpt-format torch_dist "
    "--micro-batch-size 2 --global-batch-size 8 "
    f"--train-iters {ITERATIONS} --save-interval {SAVE_INTERVAL}"
)
"""With dropout, so that a random state that is not restored shows; with little memory, so that plans differ; with two
samples a micro-batch, so that similar lengths are brought together in windows, and those go on where they were."""


def test_killed_and_resumed_equals_uninterrupted(corpus, tmp_path):
    whole = train(corpus, tmp_path / "whole", f"{FLAGS} --save {tmp_path}/whole/checkpoints")
    assert len(whole.trace) == ITERATIONS * MICROBATCHES
    assert len(whole.plans) > 2 and len(set(whole.lengths)) > 5

    checkpoints = f"--save {tmp_path}/parts/checkpoints --load {tmp_path}/parts/checkpoints"
    with Training(corpus, tmp_path / "parts", f"{FLAGS} {checkpoints}") as run:
        run.wait_for_iteration(SAVE_INTERVAL + 2)
        ranks = run.ranks()
        started = [process_id for rank in ranks for process_id in _session_of(rank)]
        os.killpg(run.launcher.pid, signal.SIGKILL)  # what `kill -9` of a shell's job reaches: not the ranks
        assert run.finish().status == -signal.SIGKILL
        assert len(ranks) == 2
        _wait_until_gone(started)
        recorded = {line.iteration for line in run.trace()}
    saved = int((tmp_path / "parts/checkpoints/latest_checkpointed_iteration.txt").read_text())
    assert SAVE_INTERVAL <= saved < max(recorded) < ITERATIONS  # work is lost, and the trace knows of it

    rest = train(corpus, tmp_path / "parts", f"{FLAGS} {checkpoints}")
    assert f"at iteration {saved}" in rest.output
    assert [(line.iteration, line.microbatch) for line in rest.trace] == [
        (iteration, microbatch) for iteration in range(1, ITERATIONS + 1) for microbatch in range(MICROBATCHES)
    ]
    for resumed, uninterrupted in zip(rest.trace, whole.trace, strict=True):
        for field in ("seq_length", "padded_length", "plan", "loss"):
            assert getattr(resumed, field) == getattr(uninterrupted, field), (field, resumed, uninterrupted)
    assert any(line.loss is not None for line in rest.trace if line.iteration > saved)


def test_a_rank_that_dies_ends_the_run(corpus, tmp_path):
    with Training(corpus, tmp_path, "--train-iters 100000") as run:
        run.wait_for_iteration(2)
        ranks = run.ranks()
        assert len(ranks) == 2
        kill(ranks[1])
        begin = time.monotonic()
        result = run.finish(limit_seconds=60)
        assert result.status == 1, result.output[-2000:]
        assert "paradyse: training failed: rank 1 was killed by SIGKILL" in result.output
        _wait_until_gone(ranks, begin + 60 - time.monotonic())


def _session_of(rank: int) -> list[int]:
    """A rank leads a session; in it are those that write its checkpoints."""
    found = [int(name) for name in os.listdir("/proc") if name.isdecimal() and _session(int(name)) == rank]
    assert rank in found
    return found


def _session(process_id: int) -> int | None:
    try:
        return os.getsid(process_id)
    except ProcessLookupError:
        return None


def _wait_until_gone(process_ids: list[int], limit_seconds: float = 10) -> None:
    end = time.monotonic() + limit_seconds
    while alive := [process_id for process_id in process_ids if is_running(process_id)]:
        if time.monotonic() > end:
            for process_id in alive:
                kill(process_id)
            raise AssertionError(f"{len(alive)} processes go on without their launcher")
        time.sleep(0.05)
