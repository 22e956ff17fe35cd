"""`paradyse bench convergence`: two runs are compared iteration by iteration, and a few real iterations agree."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from paradyse_megatron.bench.convergence import DYNAMIC, STOCK, compared, draw
from paradyse_megatron.cli.benches import convergence
from paradyse_megatron.cli.main import main
from tests.runtime.test_trace import LINE

MICRO_BATCHES = [
    replace(LINE, iteration=1, seq_length=100, loss=4.0, plan="ulysses"),
    replace(LINE, iteration=1, seq_length=300, loss=2.0, plan="tp_sp"),
    replace(LINE, iteration=2, seq_length=50, loss=3.0, plan="tp_sp"),
]


def _content(second_loss: float) -> dict:
    stock = [*MICRO_BATCHES[:2], replace(MICRO_BATCHES[2], loss=second_loss)]
    return {"num_ranks": 2} | compared(MICRO_BATCHES, stock)


def test_curves_are_means_over_tokens_and_the_worst_iteration_counts():
    content = _content(3.0 / 1.002)
    assert content["losses"][DYNAMIC] == pytest.approx([2.5, 3.0])
    assert content["largest_relative_difference"] == pytest.approx(0.002)
    assert content["first_iteration_difference"] == 0
    assert content["option_shares"] == pytest.approx({"tp_sp": 2 / 3, "ulysses": 1 / 3})
    assert not convergence.answer(content).yes and convergence.answer(_content(3.0 / 1.0009)).yes


def test_a_curve_that_is_no_number_differs():
    assert not convergence.answer(_content(float("nan"))).yes


def test_other_documents_are_no_comparison():
    with pytest.raises(RuntimeError, match="same documents"):
        compared(MICRO_BATCHES, [replace(line, seq_length=7) for line in MICRO_BATCHES])


def test_pictures(tmp_path):
    for name, begins in (("a.svg", b"<?xml"), ("a.png", b"\x89PNG")):
        draw(_content(3.0), tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_few_real_iterations(capsys, tmp_path):
    """Long enough for several plans; the first loss tells that both runs begin with the same weights and documents."""
    picture = tmp_path / "curves.svg"
    assert main(f"bench convergence --iterations 3 --seq-length 1024 --picture {picture} --json".split()) == 0
    content = json.loads(capsys.readouterr().out)
    assert len(content["losses"][STOCK]) == len(content["losses"][DYNAMIC]) == 3 and picture.exists()
    assert content["largest_relative_difference"] < 1e-5 and content["first_iteration_difference"] < 1e-6
    assert content["num_plans"] > 1 and content["option_shares"].get("tp_sp", 0) < 0.5  # stock has nothing else


@pytest.mark.parametrize(
    ("asked", "said"),
    [("--iterations 0", "at least 1"), ("--num-ranks 1", "--num-ranks 1"), ("--picture a.gif", "end with .png")],
)
def test_what_it_refuses(asked, said, capsys):
    assert main(["bench", "convergence", *asked.split()]) == 2
    assert said in capsys.readouterr().err
