"""The cost-model file: round trip, strictness, large numbers."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.curve import LONGEST
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.planner import Planner

CONFIGS = Path(__file__).parents[2] / "configs"
TINY = ModelShape.from_yaml(CONFIGS / "models" / "tiny.yaml")
CPU = Cluster.from_yaml(CONFIGS / "clusters" / "cpu-2core.yaml")


@pytest.fixture
def model():
    return estimate(TINY, CPU, 2)


def test_save_and_load_are_inverse(model, tmp_path):
    model.save(tmp_path / "model.json")
    again = CostModel.load(tmp_path / "model.json")
    assert again == model and again.options == model.options
    for option in model.options:
        assert again.predict(option, 1234) == model.predict(option, 1234)
    assert again.predict_head(1234) == model.predict_head(1234)
    assert (again.group_size, again.dtype, again.model["hidden_size"]) == (2, "fp32", 128)
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]  # nothing left of writing


def test_both_heads_are_kept_and_a_file_without_chunks_is_one_of_the_whole_head(model, tmp_path):
    model.save(tmp_path / "both.json")
    assert CostModel.load(tmp_path / "both.json").heads == model.heads == ("whole", "chunked")
    whole = dataclasses.replace(model, chunked_head=None)
    whole.save(tmp_path / "whole.json")
    again = CostModel.load(tmp_path / "whole.json")
    assert again == whole and again.heads == ("whole",) and 'chunked":' not in (tmp_path / "whole.json").read_text()
    assert model.predict_head(1000, "whole") == again.predict_head(1000) != model.predict_head(1000, "chunked")
    with pytest.raises(ValueError, match="no costs of the head 'chunked'; it knows whole"):
        again.predict_head(1000, "chunked")
    with pytest.raises(ValueError, match="no costs of the head 'half'; it knows whole, chunked"):
        model.predict_head(1000, "half")


def test_the_file_is_json_with_a_schema_and_units(model, tmp_path):
    model.save(tmp_path / "model.json")
    found = json.loads((tmp_path / "model.json").read_text())
    assert found["schema"] == 3
    costs = {"milliseconds", "saved_bytes", "workspace_bytes", "buffer_bytes", "measured"}
    assert found["layers"]["dense"]["ring"].keys() == costs
    assert found["layers"]["dense"]["ring"]["saved_bytes"]["terms"][0].keys() == {
        "constant",
        "per_token",
        "per_token_squared",
    }


def test_predictions_are_plain_numbers(model):
    cost = model.predict("ring/gathered+none", np.int32(1000))
    assert cost == model.predict("ring", 1000)
    assert type(cost.milliseconds) is float and type(cost.saved_bytes) is int and type(cost.workspace_bytes) is int


@pytest.mark.parametrize("group_size", [1, 2, 8, 64])
def test_very_long_and_very_wide_is_finite_and_positive(group_size):
    shape = ModelShape(
        hidden_size=16_384,
        num_layers=126,
        num_attention_heads=128,
        num_query_groups=64,
        head_dim=128,
        ffn_hidden_size=53_248,
        vocab_size=128_256,
        gated_mlp=True,
    )
    model = estimate(shape, CPU, group_size)
    for option in model.options:
        cost = model.predict(option, np.int32(4_194_304))
        for number in (cost.milliseconds, cost.saved_bytes, cost.workspace_bytes):
            assert 0 < number < math.inf
        assert cost.saved_bytes >= 4_194_304 * 16_384 * 2 // group_size  # at least the layer's input in bf16
    budget = 80 * 2**30
    plan = Planner(model, 126, budget).plan(4_194_304)
    assert plan.fits is False and 0 < plan.predicted_ms < math.inf and plan.predicted_bytes > budget


def test_options_and_lengths_that_are_not_there(model):
    with pytest.raises(ValueError, match="recompute 'some', which does not exist"):
        model.predict("usp+some", 100)
    with pytest.raises(ValueError, match="no costs of 'ring'; it knows tp_sp"):
        estimate(TINY, CPU, 2, ["tp_sp"]).predict("ring", 100)
    for length in (0, -5, 10.0, True):
        with pytest.raises(ValueError, match="sequence length"):
            model.predict("ring", length)
        with pytest.raises(ValueError, match="sequence length"):
            model.predict_head(length)


def test_another_model_is_named(model):
    model.require_match(TINY, 2)
    other = ModelShape(**TINY.as_dict() | {"hidden_size": 256, "dtype": "bf16"})
    with pytest.raises(ValueError, match="hidden_size 128 is not 256; dtype fp32 is not bf16; group_size 2 is not 4"):
        model.require_match(other, 4)
    with pytest.raises(ValueError, match="micro_batch_size 1 is not 3"):
        model.require_match(TINY, 2, micro_batch_size=3)


def changed(*keys, to=None, drop=False, add=None):
    """A change of the file's content at the place that `keys` lead to."""

    def change(content):
        *path, last = keys
        for key in path:
            content = content[key]
        if drop:
            del content[last]
        elif add:
            content[last][add] = to
        else:
            content[last] = to

    return change


OPTIONS = ("layers", "dense")
RING = (*OPTIONS, "ring")
SAVED = (*RING, "saved_bytes", "terms", 0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (changed("schema", to=1), "schema 1; this version reads schema 3"),
        (changed("schema", drop=True), "no key 'schema'"),
        (changed("layers", drop=True), "no key 'layers'"),
        (changed("heads", "whole", drop=True), "no key 'whole'"),
        (changed("model", add="colour", to=1), "'model', has the unknown key 'colour'"),
        (changed("model", "hidden_size", drop=True), "'model', has no key 'hidden_size'"),
        (changed("model", "hidden_size", to="128"), "under 'hidden_size' '128'"),
        (
            changed(*OPTIONS, add="usp+some", to={}),
            "the recompute 'some', which does not exist",
        ),
        (changed(*OPTIONS, add="ring/gathered", to={}), "'ring/gathered', which must be written 'ring'"),
        (changed(*OPTIONS, to={}), "at least one option"),
        (changed(*OPTIONS, to=[1]), "at least one option"),
        (changed(*OPTIONS, "ring", to=[]), "option 'ring', must hold keys and values"),
        (changed(*OPTIONS, "ring", "workspace_bytes", drop=True), "option 'ring', has no key 'workspace_bytes'"),
        (changed(*OPTIONS, "ring", add="seconds", to=1), "option 'ring', has the unknown key 'seconds'"),
        (changed("heads", "whole", "milliseconds", drop=True), "head 'whole', has no key 'milliseconds'"),
        (changed("heads", "chunked", "milliseconds", drop=True), "head 'chunked', has no key 'milliseconds'"),
        (changed("heads", "chunked", to=7), "head 'chunked', must hold keys and values"),
        (changed(*SAVED, "per_token", drop=True), "option 'ring', 'saved_bytes', 'terms', has no key 'per_token'"),
        (
            changed(*SAVED, "per_token", to=-1.0),
            "'saved_bytes', 'terms', has under 'per_token' -1.0, but no cost falls with length",
        ),
        (changed(*SAVED, "per_token", to=True), "under 'per_token' True, which must be a number"),
        (changed(*SAVED, "per_token", to="1"), "under 'per_token' '1', which must be a number"),
        (changed(*SAVED, "per_token", to=None), "under 'per_token' None"),
        (changed(*SAVED, "per_token", to=10**400), "not finite"),
        (changed(*SAVED, "per_token_squared", to=1e300), f"is not finite at {LONGEST} tokens"),
        (
            changed(*RING, "buffer_bytes", "terms", 0, "per_token", to=1e9),
            "option 'ring', 'buffer_bytes' is more than 'workspace_bytes', which it is a part of",
        ),
        (changed(*SAVED, to=7), "'saved_bytes', 'terms', must hold keys and values"),
        (
            changed(*RING, "milliseconds", "terms", 0, to=None),
            "must hold keys and values, but it holds None",
        ),
        (changed("group_size", to=0), "under 'group_size' 0, which must be a whole number of at least 1"),
        (changed("group_size", to=2.0), "under 'group_size' 2.0"),
        (changed("source", to=3), "under 'source' 3"),
        (changed("pickle", to="x"), "unknown key 'pickle'"),
    ],
)
def test_wrong_content_is_one_sentence_with_file_and_key(model, tmp_path, change, named):
    path = tmp_path / "model.json"
    model.save(path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=named) as error:
        CostModel.load(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_file_cut_anywhere_is_refused(model, tmp_path):
    whole, cut = tmp_path / "whole.json", tmp_path / "cut.json"
    model.save(whole)
    content = whole.read_bytes().rstrip()
    num_cuts = 0
    for length in range(0, len(content), 97):
        cut.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"cut\.json is not a whole JSON file"):
            CostModel.load(cut)
        num_cuts += 1
    assert num_cuts > 20


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none(model, tmp_path, number):
    path = tmp_path / "model.json"
    model.save(path)
    content = json.loads(path.read_text())
    content["layers"]["dense"]["ring"]["milliseconds"]["terms"][0]["per_token"] = "HERE"
    path.write_text(json.dumps(content).replace('"HERE"', number))
    with pytest.raises(ValueError, match=r"holds the number|not finite") as error:
        CostModel.load(path)
    assert str(path) in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"none\.json cannot be read: No such file"):
        CostModel.load(tmp_path / "none.json")
    with pytest.raises(ValueError, match="cannot be read"):
        CostModel.load(tmp_path)
