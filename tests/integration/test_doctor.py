"""`paradyse doctor` where things are missing, broken, or not what their name says."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import types

import pytest

from paradyse_megatron.cli import doctor
from paradyse_megatron.cli.main import main
from paradyse_megatron.integration.doctor import libraries, ours
from paradyse_megatron.integration.doctor.examine import NEEDED, USEFUL, examine
from paradyse_megatron.integration.doctor.finding import Finding, look
from tests.integration.trees import make_tree
from tests.ranks import REPOSITORY

NAMES = {*NEEDED, *USEFUL}


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Makes an importable package of a few files; here and in child processes."""

    def make(name: str, files: dict[str, str]) -> None:
        for file, text in files.items():
            path = tmp_path / "libraries" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path / "libraries"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "libraries"))
    return make


def test_this_machine_can_train_and_the_answer_is_json_alone(capsys, monkeypatch):
    monkeypatch.delenv("MEGATRON_PATH", raising=False)
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["can_train"] is True and found["missing"] == []
    assert list(found["kernels"]) == ["sm_80", "sm_90a", "sm_100", "sm_120"]
    for one in found["kernels"].values():
        assert {"compiled", "registers", "spill_bytes", "kernels", "reason"} == set(one)
    assert set(found["findings"]) == NAMES
    assert all(one["found"] for one in found["findings"].values())
    assert all(one["remedy"] for one in found["findings"].values() if not one["is_good"])
    assert not any(one["remedy"] for one in found["findings"].values() if one["is_good"])
    assert found["findings"]["Megatron"]["details"]["version"].startswith("0.")


def test_it_fits_a_screen_and_remedies_keep_their_brackets(capsys, monkeypatch):
    good, bad = Finding(True, "1.2"), Finding(False, "not installed", "pip install 'megatron-core[training]'.")
    many = {name: (lambda: bad if name == "Apex" else good) for name in USEFUL}  # noqa: B023
    monkeypatch.setattr(doctor, "kernels", lambda: {"sm_80": {"compiled": False, "reason": "no compiler for [sm_80]"}})
    monkeypatch.setattr(doctor, "examine", lambda: examine({"Megatron": lambda: bad}, many))
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "pip install 'megatron-core[training]'" in said and "no compiler for [sm_80]" in said
    assert "Training is impossible without: Megatron." in said and len(said.splitlines()) < 50


def test_importing_it_loads_no_torch():
    program = "import sys, paradyse_megatron.cli.main; print({'torch', 'megatron'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("error", [ImportError("libcudart.so.12"), OSError(""), SystemExit(1), RuntimeError("a\nb")])
def test_a_look_that_fails_keeps_no_other_from_being_taken(error):
    def fail() -> Finding:
        raise error

    found = examine({"Python": libraries.python, "torch": fail}, {"CUDA": fail, "gloo": lambda: Finding(True, "x")})
    assert found.missing == ["torch"]
    for name in ("torch", "CUDA"):
        assert type(error).__name__ in found.findings[name].found and "\n" not in found.findings[name].found
    json.dumps(found.content)


def test_without_gpu_and_gloo_nothing_can_train():
    nothing = Finding(False, "none")
    assert examine({}, {"CUDA": lambda: nothing, "gloo": lambda: nothing}).missing == ["CUDA or gloo"]


def test_the_unrelated_apex_is_recognised(library):
    library("apex", {"__init__.py": "", "models.py": ""})
    found = libraries.apex()
    assert not found.is_good and "unrelated" in found.found and "pip uninstall apex" in found.remedy


def test_nvidias_apex_is_not_taken_for_the_other(library):
    library("apex", {"__init__.py": "", "optimizers/__init__.py": ""})
    library("amp_C", {"__init__.py": ""})
    assert libraries.apex().is_good


@pytest.mark.parametrize(
    ("broken", "part"),
    [("raise ImportError('undefined symbol: x')", "undefined symbol: x"), ("import os; os.abort()", "status -6")],
)
def test_a_library_that_does_not_import_is_told_from_one_that_is_missing(library, broken, part):
    missing = libraries.transformer_engine()
    library("transformer_engine", {"__init__.py": "", "pytorch.py": broken})
    found = look(libraries.transformer_engine, False)
    assert not missing.is_good and missing.found == "not installed"
    assert not found.is_good and part in found.found and "Reinstall" in found.remedy


def test_without_a_compiler_it_says_what_that_costs(monkeypatch):
    assert libraries.compiler().is_good
    monkeypatch.setenv("PATH", "/nowhere")
    found = libraries.compiler()
    assert not found.is_good and "apt install g++" in found.remedy


def test_an_old_torch_and_an_old_python_are_named(monkeypatch):
    import torch

    monkeypatch.setattr(torch, "__version__", "2.8.0")
    monkeypatch.setattr(libraries, "OLDEST_PYTHON", (3, 99))
    assert not libraries.torch().is_good and "2.8.0" in libraries.torch().found and "2.9" in libraries.torch().remedy
    assert not libraries.python().is_good and "3.99" in libraries.python().remedy


def test_a_broken_megatron_is_told_from_a_good_one(tmp_path, monkeypatch):
    tree = make_tree(tmp_path / "tree")
    monkeypatch.setenv("MEGATRON_PATH", str(tree))
    assert "without megatron.training" in ours.megatron().found
    for name, text in (("core", ""), ("training", "import no_such_library")):
        (tree / "megatron" / name).mkdir(exist_ok=True)
        (tree / "megatron" / name / "__init__.py").write_text(text)
    found = ours.megatron()
    assert not found.is_good and "no_such_library" in found.found and "megatron-core[training]" in found.remedy
    assert "checkout" in found.found


@pytest.mark.parametrize(("version", "part"), [("0.16.1", "0.16.1"), (None, "not a Megatron-LM checkout")])
def test_an_unsupported_megatron_makes_training_impossible(tmp_path, monkeypatch, version, part):
    monkeypatch.setenv("MEGATRON_PATH", str(make_tree(tmp_path / "tree", version) if version else tmp_path))
    found = examine({"Megatron": ours.megatron}, {"CUDA": libraries.python, "gloo": libraries.python})
    assert found.missing == ["Megatron"] and part in found.findings["Megatron"].found


def test_patches_of_a_checkout_are_shown(tmp_path, monkeypatch):
    tree = make_tree(tmp_path / "tree")
    monkeypatch.setenv("MEGATRON_PATH", str(tree))
    states = ours.patches().details["states"]
    assert set(states.values()) == {"applicable"} and {"gpt-flags", "gpt-hook"} <= set(states)
    assert f"paradyse patch apply --megatron {tree}" in ours.patches().remedy
    assert main(["patch", "apply", "--megatron", str(tree)]) == 0
    assert ours.patches().is_good


@pytest.mark.parametrize(("backend", "is_good"), [(None, False), (lambda: "python", False), (lambda: "cpp", True)])
def test_the_planners_twin_is_named(monkeypatch, backend, is_good):
    planner = types.SimpleNamespace(**({"backend": backend} if backend else {}))
    monkeypatch.setitem(sys.modules, "paradyse_megatron.planner", planner)
    assert ours.planner().is_good is is_good
    assert ours.planner().details["backend"] == (backend() if backend else "python")


def test_cost_models_are_those_that_load(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "broken.json").write_text("{")
    monkeypatch.setattr(ours, "CONFIGS", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    assert ours.cost_models().details["files"] == [] and "auto" in ours.cost_models().remedy
    run = tmp_path / "runs" / "demo"
    os.makedirs(run)
    from paradyse_megatron.costmodel.cluster import Cluster
    from paradyse_megatron.costmodel.first_principles import estimate
    from paradyse_megatron.costmodel.shape import ModelShape

    configs = REPOSITORY / "configs"
    shape, cluster = configs / "models" / "tiny.yaml", configs / "clusters" / "cpu-2core.yaml"
    estimate(ModelShape.from_yaml(shape), Cluster.from_yaml(cluster), 2).save(run / "cost_model.json")
    assert ours.cost_models().details["files"] == ["runs/demo/cost_model.json"]
