"""`paradyse profile` on two ranks of this machine: what it times and weighs, and what the file then says."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml

from paradyse_megatron import CostModel
from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.option import Option
from tests.ranks import run_ranks

SMALL = ModelShape(64, 2, 4, 128, 128, add_bias=False)
SHAPES = {"dense": SMALL, "moe": replace(SMALL, num_experts=4, experts_per_token=2)}
MEASURED = {"dense": ("tp_sp", "metp+full"), "moe": ("tp_sp", "ring/tp_sp")}
LONGEST = 512


@pytest.fixture(scope="module", params=SHAPES)
def profiled(request, tmp_path_factory):
    """Kind of layers, what the command printed, and its file."""
    folder = tmp_path_factory.mktemp(request.param)
    model, out = folder / "model.yaml", folder / "costs.json"
    model.write_text(yaml.safe_dump(SHAPES[request.param].as_dict()))
    command = [sys.executable, "-m", "paradyse_megatron", "profile", "--model", str(model), "--group-size", "2"]
    command += ["--options", ",".join(MEASURED[request.param]), "--budget-seconds", "5", "--longest", str(LONGEST)]
    done = subprocess.run(
        [*command, "--out", str(out), "--json"],
        capture_output=True, text=True, timeout=400, check=False, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert not list(folder.glob(".*")), "what was measured stays in the file only"
    return request.param, json.loads(done.stdout), CostModel.load(out)


def test_every_option_has_costs_of_this_kind_of_layer(profiled):
    kind, printed, costs = profiled
    assert costs.is_measured and costs.kinds == (kind,) and printed["disagreements"] == {}
    assert set(MEASURED[kind]) < set(costs.options)
    assert all(Option.parse(option).mlp == "tp_sp" for option in costs.options) == (kind == "moe")
    for option in costs.options:
        found = [costs.predict(option, length).milliseconds for length in (64, 512, 4096, 131_072)]
        assert found == sorted(found) and found[0] > 0 and math.isfinite(found[-1])


def test_what_was_asked_for_was_measured_and_the_rest_says_so(profiled):
    kind, _, costs = profiled
    for option in costs.options:
        points = costs.costs[kind][option].measured
        assert bool(points) == (option in MEASURED[kind])
        assert all(point.milliseconds > 0 for point in points)
        if points:
            assert points[0].length_tokens == 128 and points[-1].length_tokens <= LONGEST  # as far as the budget allows
            assert any(point.peak_bytes for point in points)
    unmeasured = next(text for text in costs.provenance.assumptions if text.startswith("Not measured"))
    assert all((option in unmeasured.replace(".", ",").split(": ")[1].replace(" ", "").split(",")) ==
               (option not in MEASURED[kind]) for option in costs.options)  # fmt: skip


def test_far_beyond_the_measured_lengths_options_stay_comparable(profiled):
    """All compute the same attention: none may be thousands of times faster or slower because it was measured."""
    kind, _, costs = profiled
    times = [costs.predict(option, 131_072).milliseconds for option in MEASURED[kind]]
    others = [costs.predict(option, 131_072).milliseconds for option in costs.options if option not in MEASURED[kind]]
    assert max(times + others) / min(times + others) < 1000


def test_experts_with_biases_are_refused(tmp_path):
    from paradyse_megatron.cli.main import main

    (tmp_path / "model.yaml").write_text(yaml.safe_dump(replace(SHAPES["moe"], add_bias=True).as_dict()))
    command = f"profile --trace-only --model {tmp_path}/model.yaml --group-size 2 --out {tmp_path}/costs.json"
    assert main(command.split()) == 2 and not (tmp_path / "costs.json").exists()


def test_what_is_measured_are_layers_of_that_kind_with_weights_of_a_model_at_work():
    (stacks,) = run_ranks("tests.profiling.stacks:found", 1, SHAPES)
    for kind, (with_experts, least_deviation) in stacks.items():
        assert with_experts == [kind == "moe"] * 2 and 0.01 < least_deviation < 0.03


def test_the_demo_model_is_shipped_for_profiling():
    assert ModelShape.from_yaml(shipped("models", "tiny")).kinds == ("dense",)


def test_layers_are_those_of_the_implementation_that_trains():
    options = ["tp_sp", "ulysses", "ring+full", "metp"]
    found = run_ranks("tests.profiling.te_stacks:timed", 2, replace(SMALL, rms_norm=True), options)[0]
    assert [core for core, _ in found.values()] == ["DotProductAttention", "TEDotProductAttention"]
    assert all(time > 0 for _, times in found.values() for time in times)


@pytest.mark.parametrize(
    ("num_gpus", "has_engine", "expected"),
    [(0, True, "local"), (8, True, "transformer_engine"), (8, False, "local")],
)
def test_whose_layers_are_measured_when_nothing_is_said(monkeypatch, num_gpus, has_engine, expected):
    from paradyse_megatron.cli import profile
    from paradyse_megatron.integration.machine import Machine

    monkeypatch.setattr(profile.importlib.util, "find_spec", lambda name: name if has_engine else None)
    machine = Machine("a machine", "dgx-h100", num_gpus, 2**34)
    assert profile._implementation(None, machine) == expected
    assert profile._implementation("local", machine) == "local"
    assert profile._implementation(None, None) is None
    assert profile._implementation("transformer_engine", None) == "transformer_engine"
    if not has_engine:
        with pytest.raises(ValueError, match="Transformer Engine is not installed; give local"):
            profile._implementation("transformer_engine", machine)
