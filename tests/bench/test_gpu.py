"""What runs on the day of a GPU, on the CPU: kernels by the emulation, attention and strategies by CPU operators."""

from __future__ import annotations

import os
import subprocess

import pytest
import torch

from paradyse_megatron.bench.gpu import attention, direct, exactness, rotation, speed
from paradyse_megatron.bench.gpu.check import Check, gathered
from paradyse_megatron.bench.gpu.run import report
from paradyse_megatron.cli.benches import gpu
from paradyse_megatron.cli.main import main
from paradyse_megatron.comm import cuda, permutes
from tests.comm.emulated import COMPILER, kernels_on_cpu
from tests.ranks import REPOSITORY

CPU = torch.device("cpu")
emulated = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
no_gpu = pytest.mark.skipif(cuda.has_gpu(), reason="there is a GPU")


@emulated
def test_kernels_are_compared_for_each_group_size_and_type(monkeypatch):
    monkeypatch.setattr(exactness, "GROUP_SIZES", (2, 3))
    monkeypatch.setattr(exactness, "DTYPES", (torch.int8, torch.bfloat16, torch.float64))
    with kernels_on_cpu() as kernels:
        checks = [*exactness.small(CPU, num_tokens=3), *exactness.large(CPU, num_elements=20_001)]
        assert kernels.launched >= {"copy_sections", "sum_sections_bfloat16", "sum_sections_float64"}
        assert len(checks) == 2 * 3 + 4
        assert all(check.holds for check in checks), [check for check in checks if not check.holds]
        monkeypatch.setattr(cuda, "unpack", lambda wire, *where: permutes.unpack(wire.roll(1), *where))
        wrong = next(exactness.small(CPU, num_tokens=3))
        assert not wrong.holds and "differ: " in wrong.found


@emulated
def test_direct_stores_are_compared_for_each_group_size_and_type(monkeypatch):
    monkeypatch.setattr(exactness, "GROUP_SIZES", (2, 3))
    monkeypatch.setattr(exactness, "DTYPES", (torch.int8, torch.bfloat16))
    with kernels_on_cpu() as kernels:
        checks = list(direct.direct(CPU, num_tokens=3))
        assert kernels.launched >= {"store_sections", "meet_peers", "sum_sections_bfloat16"}
        assert len(checks) == 2 * 2 and all(check.holds for check in checks), checks
        take = direct.symm.take
        monkeypatch.setattr(direct.symm, "take", lambda *where: tuple(each.roll(1) for each in take(*where)))
        wrong = next(direct.direct(CPU, num_tokens=3))
        assert not wrong.holds and "differ: " in wrong.found


@emulated
def test_rotations_are_compared_for_each_group_size_and_type(monkeypatch):
    monkeypatch.setattr(exactness, "GROUP_SIZES", (2,))
    monkeypatch.setattr(rotation, "DTYPES", (torch.bfloat16, torch.float64))
    with kernels_on_cpu() as kernels:
        checks = list(rotation.rotation(CPU, num_tokens=3))
        assert kernels.launched >= {"rotate_sections_bfloat16", "store_rotated_float64", "copy_sections"}
        assert len(checks) == 2 and all(check.holds and "12 conv" in check.found for check in checks), checks
        monkeypatch.setattr(cuda, "pack", lambda *where: permutes.pack(*where[:3], where[3].inverse()))
        wrong = next(rotation.rotation(CPU, num_tokens=3))
        assert not wrong.holds and "differ: " in wrong.found


def test_bits_are_compared_not_numbers():
    assert exactness.same(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    assert not exactness.same(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not exactness.same(torch.zeros(2), torch.zeros(2, dtype=torch.int32))


def test_attention_is_held_against_formulas(monkeypatch):
    checks = list(attention.attention_with_log_sum_exp(CPU, torch.float32, num_tokens=32))
    assert len(checks) == 6 and all(check.holds for check in checks), checks
    right = attention.attend

    def wrong(*asked):
        block = right(*asked)
        return attention.Block(block.output, block.log_sum_exp + 0.3)

    monkeypatch.setattr(attention, "attend", wrong)
    assert not any(check.holds for check in attention.attention_with_log_sum_exp(CPU, torch.float32, num_tokens=32))


def test_strategies_of_one_rank_are_held_against_formulas(monkeypatch):
    checks = list(attention.strategies_of_one_rank(CPU))
    assert len(checks) == 2 * len(attention.STRATEGIES)
    assert all(check.holds for check in checks), [check for check in checks if not check.holds]
    right = attention.STRATEGIES["ring"]
    scaled = {"ring": lambda hidden, *others: right(hidden, *others) * (1 + 1e-6)}
    monkeypatch.setattr(attention, "STRATEGIES", scaled)
    in_fp64, _ = attention.strategies_of_one_rank(CPU)
    assert not in_fp64.holds


@emulated
def test_speeds_and_the_table(monkeypatch):
    with kernels_on_cpu():
        content = report({"kernels": lambda: [Check("kernels", "x", True, "y")]}, lambda: speed.measure(CPU, 32, 8, 1))
    assert content["num_checks"] == 2 and content["num_failed"] == 0
    sides = {(row["model"], row["conversion"], row["way"], row["side"]) for row in content["table"]}
    assert ("7B", "qkv", "forward", "pack") in sides and ("70B", "context", "forward", "unpack") in sides
    assert len(sides) == len(content["table"]) >= 8
    assert content["cuda_over_torch_speedup_median"] > 0 and content["cuda_fraction_of_copy_median"] > 0
    shown = gpu.answer(content | {"seq_length": 32, "gpu": {"name": "none"}})
    assert shown.yes and len(shown.rows) == len(content["table"]) and "2 of 2 checks hold" in shown.notes[0]


def test_a_part_that_fails_is_a_failed_check_and_the_others_go_on():
    def broken():
        yield Check("kernels", "first", True, "fine")
        raise RuntimeError("an illegal\n memory access")

    content = report({"kernels": broken, "attention": list}, list)
    assert content["num_failed"] == 3 and set(content["seconds"]) == {"kernels", "attention", "speed"}
    shown = gpu.answer(content | {"seq_length": 32, "gpu": {"name": "none"}})
    assert not shown.yes
    assert "FAILED: kernels: ran to its end: RuntimeError: an illegal memory access" in shown.notes
    assert gathered("speed", list)[0].holds is False


@no_gpu
def test_without_a_gpu_it_ends_with_one_sentence(capsys):
    assert main(["bench", "gpu"]) == 2
    said = capsys.readouterr()
    assert "There is no GPU here" in said.err and len(said.err.splitlines()) == 1 and not said.out
    assert main(["bench", "gpu", "--seq-length", "12"]) == 2
    assert "give a multiple of 8" in capsys.readouterr().err


@no_gpu
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "There is no GPU here"),
        ({"PYTHON": "/nowhere/python"}, "there is no /nowhere/python; set PYTHON"),
        ({"PYTHON": "BARE"}, "lacks torch"),
    ],
)
def test_the_script_ends_with_one_sentence_and_status_2(environment, said, tmp_path):
    if environment.get("PYTHON") == "BARE":  # an interpreter with nothing installed
        subprocess.run(["python3", "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
        environment = {"PYTHON": str(tmp_path / "bare" / "bin" / "python")}
    script = ["bash", REPOSITORY / "scripts" / "gpu_check.sh"]
    done = subprocess.run(script, env=os.environ | environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and not done.stdout
