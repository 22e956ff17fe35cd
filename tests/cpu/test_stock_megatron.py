"""Megatron's own training loop, model, optimizers and checkpoints on the CPU, nothing of this package but `cpu`."""

import pytest

from tests.ranks import run_ranks

pytest.importorskip("megatron.training")

SETUPS = {
    "tensor parallel": "--tensor-model-parallel-size 2",
    "data parallel": "--bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
}


@pytest.mark.parametrize("setup", SETUPS)
def test_training_resumes_from_a_checkpoint(setup, tmp_path):
    """After a restart, losses are what they are without one, to the last bit: weights, moments, random states, data."""
    flags = [*SETUPS[setup].split(), "--train-iters", "4", "--lr-decay-iters", "4", "--save-interval", "2"]
    flags += ["--save", str(tmp_path), "--load", str(tmp_path)]
    whole = run_ranks("tests.cpu.stock_gpt:train", 2, flags, timeout_seconds=120)
    rest = run_ranks("tests.cpu.stock_gpt:train", 2, [*flags, "--ckpt-step", "2"], timeout_seconds=120)
    for all_losses, last_losses in zip(whole, rest, strict=True):
        assert len(all_losses) == 2 * len(last_losses) > 0
        assert last_losses == all_losses[len(last_losses) :]
        assert all_losses[-1] < all_losses[0]
