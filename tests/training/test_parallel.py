"""Data and pipeline parallelism, overlap and half precision change nothing but rounding."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

import pytest

from paradyse_megatron.runtime.metrics import KEYS, metrics
from tests.training.runs import Result, train

ITERATIONS, MICROBATCHES = 6, 4
TOLERANCE = 2e-6
"""Relative, of a loss in fp32: sums in another order, over a few steps."""

SMOOTH = (
    f"--train-iters {ITERATIONS} --lr 0.3 --min-lr 0.3 --lr-decay-style constant --lr-warmup-iters 0 "
    "--weight-decay 0 --adam-eps 1 --clip-grad 1e9 --paradyse-batch-order shuffled"
)
"""An optimizer that hides nothing: its steps are as large as the gradients (a usual Adam divides a constant factor out,
clipping too), and it does not enlarge the rounding of gradients near zero. Gradient norms are still logged. And samples
in the same places whatever the number of data-parallel ranks."""

FOUR_STRATEGIES = "tp_sp,ring,ulysses/tp_sp,ring/gathered+full"
BYPASSING = "ulysses*2,ring/gathered*2"
"""Every layer computes with the parameters of modules that are not called."""

LLAMA = (
    "--swiglu --normalization RMSNorm --position-embedding-type rope --group-query-attention --num-query-groups 2 "
    "--disable-bias-linear --untie-embeddings-and-output-weights"
)
CASES = {
    "gpt, data": ("", "--paradyse-memory-budget 5400KiB"),
    "gpt, pipeline": ("", "--paradyse-memory-budget 4200KiB --pipeline-model-parallel-size 2"),
    "llama, pipeline": (LLAMA, "--paradyse-memory-budget 5MiB --pipeline-model-parallel-size 2"),
}
"""The model, and how four ranks train it: with a budget so small that plans differ."""


@pytest.fixture(scope="module")
def reference(corpus, tmp_path_factory):
    """One process, made once for each model: what it found, and the folder of its checkpoints."""

    @functools.cache
    def reference(model: str) -> tuple[Result, Path]:
        folder = tmp_path_factory.mktemp("reference")
        flags = f"{SMOOTH} {model} --make-vocab-size-divisible-by 512 --save {folder} --save-interval 2"
        result = train(corpus, folder, flags, num_ranks=1)
        assert len(result.trace) == ITERATIONS * MICROBATCHES
        return result, folder

    return reference


@pytest.fixture(scope="module")
def two_ranks_folder(tmp_path_factory):
    """Where `two_ranks` leaves what Megatron's writers wrote."""
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two_ranks(corpus, two_ranks_folder):
    """Tensor parallelism alone, without overlap, in fp32; with writers, where they are installed."""
    writers = f"--tensorboard-dir {two_ranks_folder}/tensorboard"
    if importlib.util.find_spec("wandb"):
        writers += f" --wandb-project paradyse --wandb-exp-name test --wandb-save-dir {two_ranks_folder}"
    flags = f"{SMOOTH} --tensor-model-parallel-size 2 --paradyse-plan {BYPASSING} {writers}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        return train(corpus, two_ranks_folder, flags)


def test_tensorboard_gets_our_metrics(two_ranks, two_ranks_folder):
    """Once an iteration here, and what the trace says: its rank is another than the one that writes."""
    found = _scalars(two_ranks_folder / "tensorboard")
    not_predicted = {f"paradyse/{key}" for key in KEYS if "predict" not in key and key != "memory-error-pct"}
    assert found.keys() == not_predicted | {"paradyse/share/ulysses", "paradyse/share/ring"}
    for iteration in range(1, ITERATIONS + 1):
        lines = [line for line in two_ranks.trace if line.iteration == iteration]
        expected = metrics(lines)
        for key in ("loss", "padding-pct", "seq-length-mean", "seq-length-max", "share/ring"):
            value = expected.get(f"paradyse/{key}")
            if value is not None:
                assert found[f"paradyse/{key}"][iteration] == pytest.approx(value, rel=1e-5), (key, iteration)
        assert found["paradyse/tokens_per_second"][iteration] > 0
    assert set(found["paradyse/plan_changes"].values()) == {0}


def _scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Values by our keys and by iteration."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    events = accumulator(str(folder), {"scalars": 0}).Reload()
    ours = [key for key in events.Tags()["scalars"] if key.startswith("paradyse/")]
    return {key: {event.step: event.value for event in events.Scalars(key)} for key in ours}


def test_wandb_gets_our_metrics(two_ranks, two_ranks_folder):
    """In the record of an offline run, which holds keys as they are."""
    pytest.importorskip("wandb")
    (record,) = two_ranks_folder.glob("wandb/offline-run-*/run-*.wandb")
    found = set(re.findall(rb"paradyse/[\w/-]+[\w]", record.read_bytes()))
    expected = metrics(two_ranks.trace).keys() | {"paradyse/share/ring"}
    assert {key.encode() for key in expected if "predict" not in key} <= found


@pytest.mark.parametrize("case", CASES)
def test_four_ranks_match_one(corpus, reference, tmp_path, case):
    """From the same checkpoint, optimizer state included, and with plans that differ between micro-batches.

    As plans come from costs, every metric is there, the predicted ones too.
    """
    model, flags = CASES[case]
    expected, folder = reference(model)
    flags = f"{SMOOTH} {model} --tensor-model-parallel-size 2 --make-vocab-size-divisible-by 256 {flags}"
    flags += f" --tensorboard-dir {tmp_path}/tensorboard"
    found = train(corpus, tmp_path, f"{flags} --load {folder} --ckpt-step 2 --paradyse-strategies {FOUR_STRATEGIES}", 4)
    assert len(found.plans) > 2 and "ring" in str(found.plans)
    _assert_equal(found, expected.since(3), TOLERANCE)
    assert len(found.grad_norms) == 4
    for iteration, norm in found.grad_norms.items():  # printed with three decimals
        assert norm == pytest.approx(expected.grad_norms[iteration], rel=1e-4, abs=1.1e-3)
    _assert_every_metric_is_written(_scalars(tmp_path / "tensorboard"), found)


def _assert_every_metric_is_written(written: dict[str, dict[int, float]], found: Result) -> None:
    """In each iteration; predicted times as the trace has them, where one replica's micro-batches are all."""
    assert {key for key in written if "/share/" not in key} == {f"paradyse/{key}" for key in KEYS}
    replicas = {line.rank for line in found.trace}
    for iteration in sorted({line.iteration for line in found.trace}):
        assert all(iteration in written[f"paradyse/{key}"] for key in KEYS)
        expected = metrics([line for line in found.trace if line.iteration == iteration])
        if len(replicas) == 1:
            predicted = written["paradyse/predicted-ms"][iteration]
            assert predicted == pytest.approx(expected["paradyse/predicted-ms"], rel=1e-5)


def test_overlap_changes_nothing(corpus, two_ranks, tmp_path):
    """Several buckets, so that parameters of later layers are still under way when the first layers compute."""
    flags = f"{SMOOTH} --tensor-model-parallel-size 2 --paradyse-plan {BYPASSING} --use-distributed-optimizer"
    found = train(corpus, tmp_path, f"{flags} --overlap-grad-reduce --overlap-param-gather --ddp-num-buckets 6", 4)
    _assert_equal(found, two_ranks, 1e-6)


def test_bf16_stays_near_fp32(corpus, two_ranks, tmp_path):
    plan = "tp_sp,ulysses,ring/gathered,ring/tp_sp+full"
    found = train(corpus, tmp_path, f"{SMOOTH} --tensor-model-parallel-size 2 --bf16 --paradyse-plan {plan}")
    assert found.losses != two_ranks.losses
    _assert_equal(found, two_ranks, 0.02)


def _assert_equal(found: Result, expected: Result, tolerance: float) -> None:
    """The same samples in the same order, and the same loss of each."""
    assert found.lengths == expected.lengths
    assert len(found.trace) > 3 * MICROBATCHES and len(set(found.lengths)) > 4
    assert found.losses == pytest.approx(expected.losses, rel=tolerance)
