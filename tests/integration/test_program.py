"""What the launch script runs for a checkout in MEGATRON_PATH; real checkouts are in training/test_versions.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from paradyse_megatron.integration.patches.change import apply_patches
from paradyse_megatron.integration.program import choose_program
from tests.integration.trees import make_tree
from tests.ranks import REPOSITORY

OWN = ["-m", "paradyse_megatron.integration.pretrain"]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("MEGATRON_PATH", str(tmp_path / "tree"))
    return make_tree(tmp_path / "tree")


def test_without_a_checkout_it_is_our_own_entry(monkeypatch):
    monkeypatch.delenv("MEGATRON_PATH", raising=False)
    assert choose_program() == OWN


def test_an_unpatched_checkout_serves_too_and_the_user_hears_how_to_patch_it(tree, capsys):
    assert choose_program() == OWN
    assert f"paradyse patch apply --megatron {tree}" in capsys.readouterr().out
    assert sys.path[0] == str(tree)
    assert os.environ["PYTHONPATH"] == f"{tree}{os.pathsep}/elsewhere"


def test_a_patched_checkout_runs_its_own_script(tree, capsys):
    apply_patches(tree)
    script = str(tree / "pretrain_gpt.py")
    assert choose_program() == ["-m", "paradyse_megatron.integration.script", script]
    assert script in capsys.readouterr().out


def test_a_half_patched_checkout_is_not_patched(tree):
    apply_patches(tree)
    script = tree / "pretrain_gpt.py"
    script.write_bytes(script.read_bytes().replace(b"    pretrain = with_dynamic_parallel(pretrain)\n", b""))
    assert choose_program() == OWN


@pytest.mark.parametrize(("version", "part"), [("0.16.1", "0.16.1"), (None, "not a Megatron-LM checkout")])
def test_the_launcher_refuses_other_versions_by_name_and_at_once(tmp_path, version, part):
    checkout = make_tree(tmp_path / "tree", version) if version else tmp_path
    environment = os.environ | {"MEGATRON_PATH": str(checkout), "PARADYSE_OUT": str(tmp_path / "out"), "DATA_PATH": "x"}
    done = subprocess.run([sys.executable, "-m", "paradyse_megatron.integration.launch"], env=environment,
                          cwd=REPOSITORY, capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 2
    assert part in done.stderr and str(checkout) in done.stderr and done.stderr.count("\n") == 1
