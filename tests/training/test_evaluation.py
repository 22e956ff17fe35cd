"""Micro-batches of several documents, and a validation loss in which every token counts the same."""

from __future__ import annotations

import re

import pytest

from tests.ranks import run_ranks
from tests.training.runs import LIMIT_SECONDS, MODEL, WITHOUT_LAUNCHER

MICROBATCHES = 4
"""That each of two data-parallel replicas evaluates: two batches of twelve documents, three in a micro-batch."""


def test_validation_loss_is_the_mean_over_tokens(corpus, tmp_path):
    """In the middle and at the end of training."""
    flags = (
        f"{' '.join(MODEL)} {WITHOUT_LAUNCHER} --data-path {corpus} --dynamic-parallel "
        f"--paradyse-trace {tmp_path}/trace.jsonl --tensor-model-parallel-size 2 --paradyse-plan tp_sp*2,ring*2 "
        "--micro-batch-size 3 --global-batch-size 12 --train-iters 3 --lr 1e-3 --lr-decay-style constant "
        "--split 50,50,0 --eval-interval 2 --eval-iters 2"
    )
    results = run_ranks("tests.training.workers:evaluated", 4, flags, timeout_seconds=LIMIT_SECONDS)
    text = "\n".join(printed for printed, _ in results)
    reported = re.findall(r"validation loss at iteration (\d) .*?lm loss value: ([\d.E+-]+)", text)
    assert [iteration for iteration, _ in reported] == ["2", "3"], text
    for number, (_, loss) in enumerate(reported):
        evaluation = slice(number * MICROBATCHES, (number + 1) * MICROBATCHES)
        micro_batches = [micro_batch for rank in (0, 2) for micro_batch in results[rank][1][evaluation]]  # the replicas
        assert len(micro_batches) == 2 * MICROBATCHES
        loss_sum, num_tokens = (sum(column) for column in zip(*micro_batches, strict=True))
        assert float(loss) == pytest.approx(loss_sum / num_tokens, rel=2e-6)  # seven digits are printed
        mean_of_means = sum(loss / tokens for loss, tokens in micro_batches) / len(micro_batches)
        assert abs(mean_of_means - loss_sum / num_tokens) > 1e-4  # so the wrong mean would be seen
