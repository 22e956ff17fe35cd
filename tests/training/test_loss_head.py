"""The chunked loss head in Megatron's own loop: pipelined, tied to the first stage's embeddings, overlapped."""

from __future__ import annotations

import pytest

from tests.training.runs import train

SMOOTH = (
    "--train-iters 4 --lr 0.1 --min-lr 0.1 --lr-decay-style constant --lr-warmup-iters 0 --weight-decay 0 --adam-eps 1 "
    "--clip-grad 1e9 --tensor-model-parallel-size 2"
)
"""An optimizer that hides nothing: its steps are as large as the gradients."""

PLACES = {
    "tied, two stages": "--pipeline-model-parallel-size 2",
    "untied, overlapped": (
        "--untie-embeddings-and-output-weights --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_losses_and_gradient_norms_stay_the_same(corpus, tmp_path, place):
    runs = {
        plan: train(corpus, tmp_path / str(number), f"{SMOOTH} {PLACES[place]} --paradyse-plan {plan}", num_ranks=4)
        for number, plan in enumerate(("ulysses,tp_sp*2,ring", "ulysses*1,tp_sp*2,ring*1;head=chunked"))
    }
    (whole_plan, whole), (chunked_plan, chunked) = runs.items()
    assert whole.plans == {"ulysses*1,tp_sp*2,ring*1"} and chunked.plans == {chunked_plan}, whole_plan
    assert chunked.lengths == whole.lengths and len(whole.trace) == 16
    assert chunked.losses == pytest.approx(whole.losses, rel=1e-6)
    assert len(whole.grad_norms) == 4 and chunked.grad_norms == pytest.approx(whole.grad_norms, rel=1e-3, abs=1.1e-3)
