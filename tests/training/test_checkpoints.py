"""What we store is what stock Megatron stores: its checkpoints load here and ours load there."""

from __future__ import annotations

import pytest

from tests.ranks import run_ranks
from tests.training.many import train_all
from tests.training.runs import LIMIT_SECONDS, MODEL, WITHOUT_LAUNCHER

FAMILIES = ["gpt", "llama", "qwen"]
MICROBATCHES = 4
SHARED = (
    "--tensor-model-parallel-size 2 --train-iters 6 --lr 2e-3 --min-lr 2e-4 --lr-decay-style cosine "
    "--lr-warmup-iters 2 --weight-decay 0.1 --clip-grad 1.0 --save-interval 2 --ckpt-format torch_dist"
)
PAIRS = "--hybrid-layer-pattern *-*-*-*- --paradyse-plan ring,ring,tp_sp,tp_sp/gathered,upipe,metp,tp_sp*2"
"""The same model as a hybrid one, and a plan for it."""

OF_OUR_DATA = "--dataloader-type external --calculate-per-token-loss --no-create-attention-mask-in-dataloader"


def _stock(corpus: str, flags: str) -> list[float]:
    everything = f"{' '.join(MODEL)} {WITHOUT_LAUNCHER} {OF_OUR_DATA} {SHARED} --data-path {corpus} {flags}"
    return run_ranks("tests.training.stock:train", 2, everything, timeout_seconds=LIMIT_SECONDS)[0]


def test_checkpoints_go_to_stock_megatron_and_back(corpus, tmp_path):
    """Iterations 1 and 2 on stock Megatron; 3 to 6 on both; 5 and 6 on stock Megatron from our iteration 4.

    Also on our layers in a hybrid model, which Megatron loads from the checkpoint of a GPT.

    The second iteration after loading shows whether the optimizer's state came along: an Adam that starts anew
    takes far larger steps. Losses differ by the rounding of other strategies, which Adam's division enlarges.
    """
    theirs, ours = tmp_path / "stock", tmp_path / "ours"
    stock = _stock(corpus, f"--save {theirs}")
    assert len(stock) == 6 * MICROBATCHES

    from_theirs = f"{SHARED} --load {theirs} --ckpt-step 2"
    runs = {"gpt": f"{from_theirs} --paradyse-memory-budget 5MiB --save {ours}", "hybrid": f"{from_theirs} {PAIRS}"}
    continued, hybrid = train_all(corpus, tmp_path, runs, 2).values()
    assert len(continued.plans) > 2
    for found in (continued, hybrid):
        assert {line.iteration for line in found.trace} == {3, 4, 5, 6}
        assert found.losses[:MICROBATCHES] == pytest.approx(stock[2 * MICROBATCHES : 3 * MICROBATCHES], rel=1e-6)
        assert found.losses == pytest.approx(stock[2 * MICROBATCHES :], rel=1e-5)

    back = _stock(corpus, f"--load {ours} --ckpt-step 4")
    assert len(back) == 2 * MICROBATCHES
    assert back[:MICROBATCHES] == pytest.approx(continued.losses[2 * MICROBATCHES : 3 * MICROBATCHES], rel=1e-6)
    assert back == pytest.approx(continued.losses[2 * MICROBATCHES :], rel=1e-5)


def test_models_hold_and_store_the_same():
    """Names, shapes, types, places in the whole, replicas, attributes of parameters.

    One attribute differs: our replicated parameters are marked for sequence parallelism, which stock norms refuse.
    """
    for rank, found in enumerate(run_ranks("tests.training.stock:both_models", 2, FAMILIES)):
        for family in FAMILIES:
            stock, ours = found[family]["stock"], found[family]["ours"]
            for part in ("state dict", "checkpoint", "buffers"):
                assert ours[part] == stock[part], (rank, family, part)
            assert len(ours["checkpoint"]) > len(ours["parameters"]) > 20
            assert list(ours["parameters"]) == list(stock["parameters"])
            replicated = [
                name
                for name, parameter in ours["parameters"].items()
                if name.startswith("decoder.") and parameter.get("tensor_model_parallel") != "True"
            ]
            marks = [ours["parameters"][name].pop("sequence_parallel", None) for name in replicated]
            assert marks == ["True"] * len(replicated) and len(replicated) > 6, (rank, family)
            for name in replicated:
                stock["parameters"][name].pop("sequence_parallel", None)
            assert ours["parameters"] == stock["parameters"], (rank, family)
