"""Hybrid models, mixtures of experts, virtual stages, and checkpoints that change hands between group sizes.

Everything goes on from iteration 2 or 4 of some other run's checkpoint, optimizer included, and is compared with one
process that went through. A launch runs several trainings.
"""

from __future__ import annotations

import pytest

from tests.training.many import train_all
from tests.training.runs import Result

ITERATIONS, MICROBATCHES = 6, 4
TOLERANCE = 2e-6
"""Relative, of a loss in fp32: sums in another order, over a few steps."""

SMOOTH = (
    f"--train-iters {ITERATIONS} --lr 0.3 --min-lr 0.3 --lr-decay-style constant --lr-warmup-iters 0 "
    "--weight-decay 0 --adam-eps 1 --clip-grad 1e9 --save-interval 2"
)
"""As in `test_parallel`: an optimizer that hides nothing. Its momentum shows when it does not come along."""

EXPERTS = "--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 64 --moe-layer-freq 2 --disable-bias-linear"
FOUR_STRATEGIES = "tp_sp,ring,ulysses/tp_sp,ring/gathered+full"
PAIRS = "--hybrid-layer-pattern *-*-*-*-"
STAGES = "--hybrid-layer-pattern *-|*-|*-|*-"
VIRTUAL = "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"
MIXED_PAIRS = "ring,tp_sp/gathered,ulysses,tp_sp/streamed,upipe+full,ring+full,tp_sp*2"


def _tensor_parallel(num_ranks: int) -> str:
    """The same padded vocabulary whatever the number of ranks."""
    return f"--tensor-model-parallel-size {num_ranks} --make-vocab-size-divisible-by {512 // num_ranks}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Each run has a folder in it, with its checkpoints."""
    return tmp_path_factory.mktemp("stacks")


@pytest.fixture(scope="module")
def one(corpus, folder):
    """One process, from the start to the end."""
    runs = {
        "gpt": f"{SMOOTH} {_tensor_parallel(1)} --save {folder}/gpt",
        "experts": f"{SMOOTH} {_tensor_parallel(1)} {EXPERTS} --paradyse-plan tp_sp --save {folder}/experts",
    }
    return train_all(corpus, folder, runs, 1)


@pytest.fixture(scope="module")
def two(corpus, folder, one):
    """Two processes, from iteration 2 of `one`."""
    gpt = f"{SMOOTH} --load {folder}/gpt --ckpt-step 2"
    auto = f"--paradyse-strategies {FOUR_STRATEGIES} --paradyse-memory-budget"
    runs = {
        "tp_sp": f"{gpt} {_tensor_parallel(2)} --paradyse-plan tp_sp --save {folder}/tp_sp",
        "virtual": f"{gpt} {_tensor_parallel(1)} {VIRTUAL} {auto} 6MiB",
        "hybrid": f"{gpt} {_tensor_parallel(2)} {PAIRS} --paradyse-plan {MIXED_PAIRS} --save {folder}/hybrid",
        "hybrid auto": f"{gpt} {_tensor_parallel(2)} {PAIRS} {auto} 5400KiB",
        "hybrid virtual": f"{gpt} {_tensor_parallel(1)} {STAGES} --pipeline-model-parallel-size 2 {auto} 6400KiB",
        "spread experts": (
            f"{SMOOTH} --load {folder}/experts --ckpt-step 2 {_tensor_parallel(2)} {EXPERTS} "
            "--paradyse-plan ring/tp_sp,tp_sp/streamed,ulysses/tp_sp+full,metp"
        ),
        "experts auto": (
            f"{SMOOTH} --load {folder}/experts --ckpt-step 2 {_tensor_parallel(2)} {EXPERTS} "
            "--paradyse-strategies tp_sp,ulysses,ulysses/tp_sp,ring/tp_sp+full --paradyse-memory-budget 4MiB"
        ),
    }
    return train_all(corpus, folder, runs, 2)


@pytest.fixture(scope="module")
def four(corpus, folder, two):
    """Four processes."""
    auto = f"--paradyse-strategies {FOUR_STRATEGIES} --paradyse-memory-budget 4200KiB"
    runs = {
        "virtual wide": f"{SMOOTH} --load {folder}/gpt --ckpt-step 2 {_tensor_parallel(2)} {VIRTUAL} {auto}",
        "wider": f"{SMOOTH} --load {folder}/tp_sp --ckpt-step 4 {_tensor_parallel(4)} --paradyse-plan ulysses",
    }
    return train_all(corpus, folder, runs, 4)


@pytest.fixture(scope="module")
def narrower(corpus, folder, two):
    """One process again, from what two have saved."""
    runs = {
        "narrower": f"{SMOOTH} --load {folder}/tp_sp --ckpt-step 4 {_tensor_parallel(1)} --paradyse-plan ring",
        "narrower hybrid": f"{SMOOTH} --load {folder}/hybrid --ckpt-step 4 {_tensor_parallel(1)} {PAIRS}",
    }
    return train_all(corpus, folder, runs, 1)


@pytest.mark.parametrize("name", ["hybrid", "hybrid auto", "hybrid virtual"])
def test_a_hybrid_model_goes_on_from_the_checkpoint_of_a_gpt(one, two, name):
    assert "loading a GPT checkpoint into the hybrid model: 4 GPT layers" in two[name].output
    _assert_goes_on(two[name], one["gpt"], 3)
    plans = {plan for plan in two[name].plans if "," in plan}
    assert plans if name == "hybrid" else len(two[name].plans) > 2


def test_virtual_stages_of_unequal_lengths(one, two, four):
    for found in (two["virtual"], four["virtual wide"]):
        _assert_goes_on(found, one["gpt"], 3)
        assert len(found.plans) > 2
        assert len(found.grad_norms) == 4
        for iteration, norm in found.grad_norms.items():  # printed with three decimals
            assert norm == pytest.approx(one["gpt"].grad_norms[iteration], rel=1e-4, abs=1.1e-3)


def test_experts_keep_their_mlp(one, two):
    _assert_goes_on(two["spread experts"], one["experts"], 3)


def test_experts_are_planned_by_length(one, two):
    _assert_goes_on(two["experts auto"], one["experts"], 3)
    assert len(two["experts auto"].plans) > 1


def test_a_checkpoint_of_two_ranks_goes_on_with_one_and_with_four(one, two, four, narrower):
    _assert_goes_on(two["tp_sp"], one["gpt"], 3)
    for found in (narrower["narrower"], narrower["narrower hybrid"], four["wider"]):
        _assert_goes_on(found, one["gpt"], 5)


def _assert_goes_on(found: Result, expected: Result, iteration: int) -> None:
    """The same samples in the same order, and the same loss of each, from `iteration` to the end."""
    rest = expected.since(iteration)
    assert found.lengths == rest.lengths and len(set(found.lengths)) > 2
    assert len(found.trace) == (ITERATIONS - iteration + 1) * MICROBATCHES
    assert found.losses == pytest.approx(rest.losses, rel=TOLERANCE)
