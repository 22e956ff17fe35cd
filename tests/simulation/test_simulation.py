"""The simulation, held against the planner, against sums by hand and against what must hold of any machine."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

from paradyse_megatron.cli.main import main
from paradyse_megatron.costmodel.cluster import Cluster, Link
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.simulation import choice as choices
from paradyse_megatron.simulation.choice import times
from paradyse_megatron.simulation.context_parallel import (
    ContextParallel,
    context_parallel_choices,
    tensor_parallel_costs,
)
from paradyse_megatron.simulation.field import planned_choices
from paradyse_megatron.simulation.lengths import DISTRIBUTIONS, read_lengths
from paradyse_megatron.simulation.network import Network, static_bytes
from paradyse_megatron.simulation.outcome import _slowest, outcome
from tests.ranks import REPOSITORY, run_ranks

GIB = 2**30
LIMIT = 4_194_304
SHAPE = ModelShape.from_yaml(REPOSITORY / "configs" / "models" / "llama-3-8b.yaml")
CLUSTER = Cluster.from_yaml(REPOSITORY / "configs" / "clusters" / "dgx-h100.yaml")
NETWORK = Network(CLUSTER, 64)


@pytest.fixture(scope="module")
def cost_model():
    return estimate(SHAPE, CLUSTER, 8)


@pytest.mark.parametrize("budget", [None, 40 * GIB])
def test_a_static_choice_is_a_planner_with_one_option(cost_model, budget):
    static = static_bytes(SHAPE, 8, 64)
    found = {each.name: each for each in planned_choices(cost_model, 64, budget)}
    assert len(found) == len(cost_model.options) + 1
    for option in ("ulysses", "ring/tp_sp+full", "tp_sp", "metp"):
        mine = found[f"{option} P=8"]
        planner = Planner(
            cost_model, 32, budget or 2**62, options=[option], static_bytes=static, chunked_head=option != "tp_sp"
        )
        longest = mine.longest(LIMIT)
        assert longest == planner.largest_length(LIMIT)
        for length in (100, 8_192, min(longest, 100_000)):
            assert mine.milliseconds(length) == pytest.approx(planner.plan(length).predicted_ms)


def test_times_between_knots_are_off_by_less_than_half_a_per_cent(cost_model):
    mine = next(each for each in planned_choices(cost_model, 8, None) if each.name == "tp_sp P=8")
    lengths = np.unique(np.geomspace(16, 900_000, 3000).astype(np.int64))
    assert len(lengths) > 10 * choices.MAX_KNOTS
    exact = np.array([mine.milliseconds(int(length)) for length in lengths])
    long_enough = lengths > 3000  # shorter ones are padded by more than that
    np.testing.assert_allclose(times(mine, lengths)[long_enough], exact[long_enough], rtol=5e-3)
    few = lengths[:: len(lengths) // 50]
    np.testing.assert_allclose(times(mine, few), [mine.milliseconds(int(length)) for length in few], rtol=1e-12)


def test_a_step_ends_with_its_slowest_replica():
    assert _slowest(np.array([5.0, 3.0, 3.0, 2.0, 2.0, 1.0]), 2) == 8.0
    assert _slowest(np.array([5.0, np.nan, 1.0]), 4) == 5.0
    assert _slowest(np.array([]), 3) == 0.0


def test_documents_that_do_not_fit_are_counted(cost_model):
    lengths = np.array([1_000, 2_000, 50_000_00, 3_000])
    mine = next(each for each in planned_choices(cost_model, 16, 40 * GIB) if each.name == "tp_sp P=8")
    found = outcome(mine, lengths, 2, 16, LIMIT)
    assert (found.oom_documents, found.oom_tokens, found.completes) == (1, 5_000_000, False)
    first, second = max(map(mine.milliseconds, (1_000, 2_000))), mine.milliseconds(3_000)
    assert found.step_ms == pytest.approx((first + second) / 2)
    assert found.gpu_hours_per_billion_tokens == pytest.approx(16 * (first + second) / 3.6e6 * 1e9 / 6_000)


def context_parallel(tensor_ranks, context_ranks, communication="p2p", option="tp_sp", network=NETWORK):
    costs = tensor_parallel_costs(SHAPE, network, tensor_ranks)
    return ContextParallel(costs, network, context_ranks, communication, option)


@pytest.mark.parametrize("option", ["tp_sp", "tp_sp+full"])
def test_without_context_parallelism_it_is_tp_sp(cost_model, option):
    mine = context_parallel(8, 1, option=option)
    expected = 32 * cost_model.predict(option, 8192).milliseconds + cost_model.predict_head(8192).milliseconds
    assert mine.milliseconds(8192) == pytest.approx(expected)


@pytest.mark.parametrize("option", ["tp_sp", "tp_sp+full"])
@pytest.mark.parametrize("communication", ["p2p", "a2a", "all_gather"])
def test_with_links_that_cost_nothing_work_is_shared_evenly(communication, option):
    """The causal pairs too: half of the sequence on half of the ranks would have a quarter of them."""
    free = Link(1e30, 0.0)
    network = Network(dataclasses.replace(CLUSTER, intra_node=free, inter_node=free, layer_overhead_us=0), 64)
    one = context_parallel(2, 1, communication, option, network).milliseconds(524_288)
    four = context_parallel(2, 4, communication, option, network).milliseconds(524_288)
    assert four == pytest.approx(one / 4, rel=0.01)  # weights are read whole on each


def test_bytes_that_attention_sends():
    """Per rank, layer and direction, with s tokens: keys and values of s/C tokens (C - 1) times, or heads exchanged."""
    tokens, bandwidth = 65_536, CLUSTER.intra_node.bandwidth_bytes_per_s
    local, key_values, queries = tokens // 4, 2 * 4 * 128 * 2, 16 * 128 * 2  # bytes of a token with T = 2
    silent = dataclasses.replace(CLUSTER, intra_node=Link(bandwidth, 0.0), hop_overlap_fraction=0)
    network = dataclasses.replace(NETWORK, cluster=silent)
    ring, exchanged, gathered = (
        context_parallel(2, 4, communication, network=network)._exchange_ms(local, 1)
        for communication in ("p2p", "a2a", "all_gather")
    )
    assert ring == pytest.approx(1e3 * 3 * 3 * key_values * local / bandwidth)
    assert gathered == pytest.approx(ring)
    assert exchanged == pytest.approx(1e3 * 2 * (2 * queries + 2 * key_values) * local * 3 / 4 / bandwidth)


def test_memory_falls_with_context_ranks():
    peaks = [context_parallel(2, ranks).peak_bytes(262_144) for ranks in (2, 4, 8, 16)]
    assert all(more > less for more, less in itertools.pairwise(peaks))
    assert context_parallel(2, 8).peak_bytes(262_144) > context_parallel(2, 8, option="tp_sp+full").peak_bytes(262_144)


def test_ways_that_the_heads_allow():
    found = list(context_parallel_choices(SHAPE, NETWORK, None))
    assert len({each.name for each in found}) == len(found)
    assert all(each.tensor_ranks <= 8 and each.group_size <= 64 for each in found)
    exchanging = {(each.tensor_ranks, each.context_ranks) for each in found if each.communication == "a2a"}
    assert (1, 8) in exchanging and (2, 4) in exchanging and (2, 8) not in exchanging and (8, 2) not in exchanging


def test_a_group_beyond_a_node_sees_the_slower_link():
    assert context_parallel(8, 2).milliseconds(65_536) > 0
    fast = Network(dataclasses.replace(CLUSTER, inter_node=CLUSTER.intra_node), 64)
    assert context_parallel(8, 2).milliseconds(65_536) > context_parallel(8, 2, network=fast).milliseconds(65_536)
    assert context_parallel(4, 2).milliseconds(65_536) == context_parallel(4, 2, network=fast).milliseconds(65_536)


def test_the_optimizer_is_sharded_over_replicas():
    whole = SHAPE.static_bytes(8)
    assert static_bytes(SHAPE, 8, 8) == whole
    assert static_bytes(SHAPE, 8, 8 * 12) == pytest.approx(whole * (6 + 1) / 18, rel=1e-6)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_named_distributions(name):
    found = read_lengths(name, 500, 7)
    assert len(found) == 500 and found.min() >= 1 and found.dtype == np.int64
    np.testing.assert_array_equal(found, read_lengths(name, 500, 7))
    assert list(found) != sorted(found)
    assert sorted(found) == sorted(read_lengths(name, 500, 8))


def test_parameters_are_those_that_are_documented():
    assert np.median(read_lengths("github-code-like", 999, 0)) == 1860
    assert read_lengths("chat-like", 20_000, 0).mean() == pytest.approx(568, rel=0.01)
    assert np.median(read_lengths("uniform", 999, 0)) == 65_536
    genome = read_lengths("genome-like", 999, 0)
    assert genome.min() >= 1024 and genome.max() <= 624_000
    assert np.median(genome) == pytest.approx((1024 * 624_000) ** 0.5, rel=1e-3)


def test_files_of_lengths(tmp_path):
    (tmp_path / "lines").write_text("5\n70000\n3\n")
    (tmp_path / "list").write_text(" [5, 70000, 3]")
    for name in ("lines", "list"):
        assert read_lengths(str(tmp_path / name), 9, 0).tolist() == [5, 70000, 3]
    for content in ("", "[]", "5\nsix", "0", "[1.5]", "[true]", "[5", "-3"):
        (tmp_path / "bad").write_text(content)
        with pytest.raises(ValueError, match="lengths"):
            read_lengths(str(tmp_path / "bad"), 9, 0)
    with pytest.raises(ValueError, match="github-code-like"):
        read_lengths("/nowhere", 9, 0)


@pytest.fixture
def cost_file(tmp_path):
    cluster = Cluster.from_yaml(REPOSITORY / "configs" / "clusters" / "cpu-2core.yaml")
    path = tmp_path / "cost_model.json"
    estimate(ModelShape.from_yaml(REPOSITORY / "configs" / "models" / "tiny.yaml"), cluster, 2).save(path)
    return str(path)


def test_simulate_by_a_cost_model_alone(cost_file, tmp_path, capsys):
    lengths = tmp_path / "lengths"
    lengths.write_text("100\n200\n4096\n8000")
    arguments = ["simulate", "--cost-model", cost_file, "--lengths", str(lengths), "--global-batch", "2"]
    assert main([*arguments, "--json", "--memory-budget", "250MiB"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {each["name"]: each for each in found["choices"]}
    assert by_name["dynamic P=2"]["completes"] and not by_name["tp_sp P=2"]["completes"]
    completing = [each["step_ms"] for each in found["choices"] if each["completes"] and each["kind"] != "dynamic"]
    assert found["speedup_over_best_static"] == pytest.approx(min(completing) / by_name["dynamic P=2"]["step_ms"])
    assert found["speedup_over_best_static"] > 1 and found["sensitivity"] is None
    assert main([*arguments, "--memory-budget", "20MiB"]) == 1
    assert "dynamic P=2" in capsys.readouterr().out
    assert main([*arguments, "--gpus", "1"]) == main([*arguments, "--gpus", "2000"]) == 2


def test_model_without_cluster_is_refused(capsys):
    assert main(["simulate", "--model", "configs/models/tiny.yaml", "--lengths", "demo"]) == 2
    assert "--cluster" in capsys.readouterr().err


def test_megatrons_own_schedule_and_all_of_it_together():
    """In a process of its own, as it imports Megatron."""
    (ran,) = run_ranks("tests.simulation.workers:hybrid", 1, timeout_seconds=240)
    assert ran["scheduled"] > 100
    found = ran["answer"]
    kinds = {each["kind"] for each in found["choices"]}
    assert kinds == {"dynamic", "static", "megatron", "megatron hybrid"}
    assert any("CP2" in each["name"] for each in found["choices"])
    assert found["break_even_lengths"].keys() == {"1", "2"} and found["break_even_lengths"]["2"]
    assert found["sensitivity"].keys() == {"0.7", "1", "1.3"}
    assert all(links["speedup_over_best_static"] > 0 for links in found["sensitivity"].values())
    assert found["sensitivity"]["1"]["speedup_over_best_static"] == found["speedup_over_best_static"]
