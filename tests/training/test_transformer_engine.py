"""Megatron's own loop with `--transformer-impl transformer_engine`, around a stand-in (see `tests.stand_ins`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from paradyse_megatron.runtime.trace import TraceLine, read_trace
from tests.ranks import run_ranks
from tests.training.runs import MODEL, WITHOUT_LAUNCHER

ITERATIONS = 4
FLAGS = (
    f"{' '.join(MODEL)} {WITHOUT_LAUNCHER} --transformer-impl transformer_engine --tensor-model-parallel-size 2 "
    f"--train-iters {ITERATIONS} --lr 0.3 --min-lr 0.3 --lr-decay-style constant --lr-warmup-iters 0 "
    "--weight-decay 0 --adam-eps 1 --clip-grad 1e9 --dynamic-parallel --paradyse-batch-order shuffled"
)
OVERLAPPED = (
    "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-num-buckets 6 "
    "--paradyse-strategies tp_sp,ulysses,upipe,metp --paradyse-memory-budget 4000KiB"
)
"""Plans that differ between the micro-batches of a window."""


def _train(corpus: str, out: Path, flags: str, num_ranks: int, fused: bool) -> list[TraceLine]:
    """The trace but for the last iteration, which is written when Python ends, and a worker ends without that."""
    trace = out / f"{num_ranks}.jsonl"
    flags = f"{FLAGS} --data-path {corpus} --paradyse-trace {trace} {flags}"
    run_ranks("tests.training.te_workers:train", num_ranks, flags, fused, timeout_seconds=240)
    lines = [line for line in read_trace(trace) if line.iteration < ITERATIONS]
    return sorted(lines, key=lambda line: (line.iteration, line.microbatch, line.rank))


def test_gradients_added_by_the_layers_overlap_with_those_that_strategies_return(corpus, tmp_path):
    plain = _train(corpus, tmp_path, "--paradyse-plan tp_sp", 2, fused=False)
    found = _train(corpus, tmp_path, OVERLAPPED, 4, fused=True)
    assert [line.seq_length for line in found] == [line.seq_length for line in plain]
    assert len(found) == 4 * (ITERATIONS - 1) and len({line.plan for line in found}) > 2
    assert [line.loss for line in found] == pytest.approx([line.loss for line in plain], rel=2e-6)
