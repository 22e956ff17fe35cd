"""The command line as scripts use it: JSON on standard output, sentences on standard error, exit status."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from paradyse_megatron.cli.main import VERBS, main
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.option import Option
from paradyse_megatron.planner.plan import Plan
from tests.ranks import REPOSITORY

TINY = REPOSITORY / "configs" / "models" / "tiny.yaml"


@pytest.fixture(scope="module")
def cost_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("costs") / "cost_model.json"
    cluster = Cluster.from_yaml(REPOSITORY / "configs" / "clusters" / "cpu-2core.yaml")
    estimate(ModelShape.from_yaml(TINY), cluster, 2).save(path)
    return str(path)


@pytest.fixture(scope="module")
def mixed_file(tmp_path_factory):
    """Of a model whose first, third, ... layer has experts, made up: they cost what dense layers do."""
    path = tmp_path_factory.mktemp("costs") / "mixed.json"
    shape = ModelShape.from_yaml(TINY)
    cluster = Cluster.from_yaml(REPOSITORY / "configs" / "clusters" / "cpu-2core.yaml")
    dense = estimate(shape, cluster, 2)
    experts = {option: each for option, each in dense.costs["dense"].items() if Option.parse(option).mlp == "tp_sp"}
    mixed = replace(shape, num_experts=4, experts_per_token=2, expert_layer_interval=2)
    replace(dense, shape=mixed, costs={"moe": experts, **dense.costs}).save(path)
    return str(path)


@pytest.mark.parametrize("verb", ["plan", "explain", "simulate"])
def test_layers_of_several_kinds_follow_what_each_can(verb, mixed_file, tmp_path, capsys):
    (tmp_path / "lengths").write_text("100\n5000\n")
    rest = {"simulate": f"--lengths {tmp_path}/lengths"}.get(verb, "--seq-length 5000")
    assert main([verb, "--cost-model", mixed_file, "--memory-budget", "220MiB", "--json", *rest.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    if verb == "plan":
        layers = Plan.parse(found["plans"][0]["plan"], found["num_layers"]).layer_options
        assert all(option.mlp == "tp_sp" for option in layers[::2]) and any(o.mlp != "tp_sp" for o in layers[1::2])
        assert found["largest_lengths"]["ring"] > 0
    if verb == "explain":
        of_all = {terms["option"]: terms for terms in found["terms"]}
        assert sum(terms["num_layers_chosen"] for terms in found["terms"]) == ModelShape.from_yaml(TINY).num_layers
        assert of_all["ring"]["layer_ms"] == pytest.approx(
            (of_all["ring/tp_sp"]["layer_ms"] + CostModel.load(mixed_file).predict("ring", 5000, "dense").milliseconds)
            / 2
        )


def test_plan_prints_json_alone(cost_file, capsys):
    assert main(["plan", "--cost-model", cost_file, "--seq-length", "4096", "--json"]) == 0
    printed = capsys.readouterr()
    found = {row["seq_length"]: row for row in json.loads(printed.out)["plans"]}
    assert not printed.err
    assert found[64]["plan"] == "tp_sp" != found[4096]["plan"]
    assert found[4096]["fits"] is True and found[4096]["predicted_ms"] > found[64]["predicted_ms"] > 0


def test_plan_says_no_when_nothing_fits(cost_file, capsys):
    assert main(["plan", "--cost-model", cost_file, "--seq-length", "100000", "--memory-budget", "30MiB"]) == 1
    assert "no" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("plan --cost-model /nowhere --seq-length 5", "/nowhere"),
        ("plan --cost-model COSTS --seq-length 0", "at least 1"),
        ("plan --cost-model COSTS --seq-length 5 --memory-budget some", "16GiB"),
        ("plan --cost-model COSTS --lengths 5,six", "--lengths"),
        ("explain --cost-model COSTS --seq-length 0", "at least 1"),
        ("explain --cost-model COSTS --seq-length 9 --num-layers 0", "layers"),
        ("strategies --model /nowhere --group-size 2", "/nowhere"),
        ("profile --model MODEL --group-size 2 --out /nowhere/costs.json", "no folder /nowhere"),
        ("profile --model MODEL --group-size 2 --budget-seconds 0 --out costs.json", "--budget-seconds"),
        (
            "profile --trace-only --model MODEL --group-size 2 --cluster moon --out /nowhere",
            "name of a shipped one in clusters",
        ),
    ],
)
def test_bad_input_is_a_sentence_and_exit_2(cost_file, capsys, arguments, part):
    assert main(arguments.replace("COSTS", cost_file).replace("MODEL", str(TINY)).split()) == 2
    printed = capsys.readouterr()
    assert part in printed.err and not printed.out and printed.err.count("\n") == 1


def test_strategies_gives_the_reason(capsys):
    assert main(["strategies", "--model", str(TINY), "--group-size", "3", "--json"]) == 1
    assert all(row["reason"] for row in json.loads(capsys.readouterr().out))
    assert main(["strategies", "--model", str(TINY), "--group-size", "2"]) == 0
    assert "ulysses" in capsys.readouterr().out
    assert main(["strategies", "--model", str(TINY), "--group-size", "2", "--json"]) == 0
    reasons = {row["option"]: row["reason"] for row in json.loads(capsys.readouterr().out)}
    assert "keeps only q, k, v" in reasons["ring+selective"] and reasons["ulysses+selective"] is None


@pytest.mark.parametrize(("interval", "usable"), [(1, False), (2, True)])
def test_strategies_know_which_layers_have_experts(interval, usable, tmp_path, capsys):
    shape = replace(ModelShape.from_yaml(TINY), num_experts=4, experts_per_token=2, expert_layer_interval=interval)
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(shape.as_dict()))
    assert main(["strategies", "--model", str(tmp_path / "model.yaml"), "--group-size", "2", "--json"]) == 0
    found = {row["option"]: row["usable"] for row in json.loads(capsys.readouterr().out)}
    assert found["ring/tp_sp"] and found["ring"] == usable


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert f"paradyse {verb} " in capsys.readouterr().out


def test_plan_without_a_length_surveys_all_lengths(cost_file, capsys):
    assert main(["plan", "--cost-model", cost_file, "--memory-budget", "100MiB", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    longest = found["largest_lengths"]["dynamic"]
    assert found["plans"][-1]["seq_length"] == longest > found["largest_lengths"]["tp_sp"] > 0
    assert found["break_even_lengths"][0]["before"] == "tp_sp"
    assert main(["plan", "--cost-model", cost_file, "--lengths", f"64,{longest}", "--memory-budget", "100MiB"]) == 0
    assert f"{longest:,}" in capsys.readouterr().out
    assert main(["plan", "--cost-model", cost_file, "--lengths", f"{longest + 4}", "--memory-budget", "100MiB"]) == 1


@pytest.mark.parametrize("budget", [[], ["--memory-budget", "80GiB"], ["--memory-budget", "9000000GiB"]])
@pytest.mark.parametrize("materialised", [False, True])
def test_the_longest_sequences_of_a_wide_model_have_finite_positive_answers(budget, materialised, tmp_path, capsys):
    """h = 16,384 and s = 4,194,304: a product of the two, and any square, is far beyond 32 bits."""
    shape = ModelShape(16_384, 96, 128, 53_248, 128_256, num_query_groups=8, dtype="bf16")
    cluster = Cluster.from_yaml(REPOSITORY / "configs" / "clusters" / "dgx-h100.yaml")
    path = str(tmp_path / "wide.json")
    estimate(shape, replace(cluster, attention_materialised=materialised), 8).save(path)
    lengths = "2097152,4194304"
    status = main(["plan", "--cost-model", path, "--lengths", lengths, *budget, "--json"])
    half, whole = json.loads(capsys.readouterr().out)["plans"]
    for figure in ("predicted_ms", "predicted_bytes"):
        assert 0 < half[figure] < whole[figure] < float("inf")
    assert whole["predicted_bytes"] > 16_384 * 4_194_304 * 2 / 8  # one layer's input
    assert status == (0 if half["fits"] and whole["fits"] else 1)
    assert whole["fits"] == (budget != ["--memory-budget", "80GiB"])


def test_explain_shows_terms_and_reasons(cost_file, capsys):
    arguments = ["explain", "--cost-model", cost_file, "--seq-length", "4096"]
    assert main([*arguments, "--num-layers", "6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(terms["num_layers_chosen"] for terms in found["terms"]) == 6
    assert found["fits"] is True and found["sentences"]
    assert main(arguments) == 0
    few = capsys.readouterr().out
    assert main([*arguments, "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > len(few.splitlines())
    assert "Fastest for one layer" in few
    assert main([*arguments, "--memory-budget", "20MiB"]) == 1


def test_bench_planner_writes_what_it_prints(tmp_path, capsys):
    assert (
        main(["bench", "planner", "--instances", "30", "--decisions", "6", "--out", str(tmp_path / "x.json"), "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "x.json").read_text()) == {"schema": 1, **found}
    assert {"machine", "versions", "command", "date"} <= found.keys()
    assert found["num_instances"] == 30 and found["num_feasibility_disagreements"] == 0
    assert 0 <= found["greedy_gap_mean"] <= found["greedy_gap_worst"] < 0.03
    assert 0 < found["cached_us_median"] < found["cold_us_median"] and found["speedup_over_twin"] > 0
