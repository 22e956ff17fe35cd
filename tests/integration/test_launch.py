"""How the launch script finds nodes and devices, what it resolves, and the dry run; `training` has the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paradyse_megatron.integration import nodes
from paradyse_megatron.integration.launch import without_overridden
from paradyse_megatron.integration.nodes import Nodes, find_nodes
from tests.ranks import REPOSITORY

RUNS = REPOSITORY / "configs" / "runs"
STEP = {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "1", "MASTER_ADDR": "n0"}
SEVERAL = {"NNODES": "3", "NODE_RANK": "2", "MASTER_ADDR": "n0", "MASTER_PORT": "1234"}


def test_nodes_are_those_that_the_environment_names():
    assert find_nodes({}) == Nodes()
    assert find_nodes({"NNODES": "1"}) == Nodes()
    assert find_nodes(SEVERAL) == Nodes(3, 2, "n0", 1234)
    assert find_nodes(STEP) == Nodes(2, 1, "n0", nodes.DEFAULT_PORT)
    assert find_nodes(STEP | SEVERAL) == Nodes(3, 2, "n0", 1234)
    assert find_nodes({"SLURM_JOB_NUM_NODES": "4", "NNODES": "1"}) == Nodes()


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ({"NNODES": "two"}, "NNODES is 'two'; it is a whole number of at least 1."),
        (SEVERAL | {"NODE_RANK": "3"}, "NODE_RANK is 3"),
        ({"NNODES": "2", "MASTER_ADDR": "n0"}, "NODE_RANK is not set"),
        ({"NNODES": "2", "NODE_RANK": "0"}, "MASTER_ADDR is not set"),
        (SEVERAL | {"MASTER_PORT": "-1"}, "MASTER_PORT is '-1'"),
        (STEP | {"SLURM_STEP_NUM_TASKS": "16"}, "srun started 16 tasks on 2 nodes"),
        ({"SLURM_JOB_NUM_NODES": "2"}, "This SLURM job has 2 nodes"),
    ],
)
def test_nodes_that_cannot_meet_are_refused_by_name(environment, part):
    with pytest.raises(ValueError, match=part):
        find_nodes(environment)


def test_slurm_tells_the_first_host(tmp_path, monkeypatch):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames n[3-4]" ] && printf "n3\\nn4\\n"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    environment = {name: value for name, value in STEP.items() if name != "MASTER_ADDR"}
    assert find_nodes(environment | {"SLURM_JOB_NODELIST": "n[3-4]"}).address == "n3"


def test_what_the_user_gives_takes_the_place_of_defaults():
    defaults = ["--lr", "1", "--list", "a", "b", "--switch", "--last", "-1"]
    assert without_overridden(defaults, ["--list=c", "--lr", "2"]) == ["--switch", "--last", "-1"]
    assert without_overridden(defaults, []) == defaults


def _dry_run(command: list[str], out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    everything = os.environ | {"PARADYSE_PYTHON": sys.executable, "PARADYSE_OUT": str(out), "COLUMNS": "200"}
    return subprocess.run([*command, "--dry-run"], env=everything | environment, cwd=REPOSITORY, text=True,
                          capture_output=True, timeout=240)  # fmt: skip


FIXED = ["--paradyse-plan", "ring"]
NODE_0 = {"NODE_RANK": "0", "MASTER_ADDR": "n0"}
RECIPES = {
    "llama-2-7b": ({}, [], "262,144 tokens fit"),
    "llama-3-8b": ({}, ["--paradyse-memory-budget", "18GiB"], "131,072 tokens do not fit"),
    "gpt-13b-2-nodes": (
        NODE_0 | {"NNODES": "2"},
        FIXED,
        "--nnodes 2 --node-rank 0 --master-addr n0 --master-port 29500",
    ),
    "mixtral-8x7b-4-nodes": (NODE_0 | {"NNODES": "4"}, [], "32 layers in 4 pipeline stages"),
}


def test_every_run_is_in_the_table_of_recipes():
    assert {path.stem for path in RUNS.glob("*.sh")} == {*RECIPES, "common", "slurm"}


@pytest.mark.parametrize("name", RECIPES)
def test_a_dry_run_of_each_recipe_shows_command_plans_and_verdict(name, tmp_path):
    environment, flags, part = RECIPES[name]
    done = _dry_run(["bash", str(RUNS / f"{name}.sh"), *flags], tmp_path / "out", **environment)
    is_verdict_no = "do not fit" in part
    assert done.returncode == int(is_verdict_no), done.stderr
    assert done.stdout.startswith("paradyse: on each of")
    assert "torchrun --nproc-per-node 8" in done.stdout and part in done.stdout
    assert "--transformer-impl transformer_engine" in done.stdout and "--no-rope-fusion" not in done.stdout
    assert ("Predicted for" in done.stdout) == (flags != FIXED)
    assert "Not here, but needed to train: the data data/documents.idx" in done.stdout
    assert not (tmp_path / "out").exists()


def test_a_dry_run_refuses_what_training_refuses(tmp_path):
    launcher = [sys.executable, "-m", "paradyse_megatron.integration.launch", "--context-parallel-size", "2"]
    done = _dry_run(launcher, tmp_path)
    assert done.returncode == 2
    assert "--context-parallel-size 2 and --dynamic-parallel do not work together" in done.stderr
