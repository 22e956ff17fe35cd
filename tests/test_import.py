"""Importing the package is free: no torch, no Megatron, no CUDA; its public names load when they are used."""

import json
import subprocess
import sys

import paradyse_megatron

HEAVY = {"torch", "megatron", "numpy", "yaml", "rich", "matplotlib", "transformer_engine"}


def _modules_after(statement: str) -> set[str]:
    program = f"import sys, json; {statement}; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


def test_importing_loads_nothing_heavy():
    loaded = _modules_after("import paradyse_megatron; paradyse_megatron.__version__")
    assert "paradyse_megatron" in loaded
    assert not loaded & HEAVY
    assert {name for name in loaded if name.startswith("paradyse_megatron.")} == set()


def test_planning_needs_neither_torch_nor_megatron():
    loaded = _modules_after("import paradyse_megatron; paradyse_megatron.Plan, paradyse_megatron.pad_to_multiple")
    assert not loaded & {"torch", "megatron"}


def test_every_public_name_is_found():
    names = [name for name in paradyse_megatron.__all__ if not name.startswith("_")]
    assert len(names) >= 7
    for name in names:
        assert getattr(paradyse_megatron, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(paradyse_megatron, "no_such_name")
