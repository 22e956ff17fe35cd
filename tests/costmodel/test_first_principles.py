"""Estimates and the plans that follow from them, on the demo's machine and on a cluster."""

from dataclasses import replace
from pathlib import Path

import pytest

from paradyse_megatron.bench.schedule import simulated_peak
from paradyse_megatron.costmodel.cluster import Cluster, Link
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.support import excluded_options
from paradyse_megatron.layouts.padding import pad_to_multiple
from paradyse_megatron.planner.option import all_options
from paradyse_megatron.planner.planner import Planner

CONFIGS = Path(__file__).parents[2] / "configs"
GIB = 2**30


def load(model, cluster):
    return (
        ModelShape.from_yaml(CONFIGS / "models" / f"{model}.yaml"),
        Cluster.from_yaml(CONFIGS / "clusters" / f"{cluster}.yaml"),
    )


SYSTEMS = [("tiny", "cpu-2core", 2, 48 * 2**20), ("llama-3-8b", "dgx-h100", 8, 60 * GIB)]


@pytest.mark.parametrize(("model", "cluster", "group_size", "budget"), SYSTEMS)
def test_plans_differ_by_length_and_mix_when_memory_is_short(model, cluster, group_size, budget):
    shape, machine = load(model, cluster)
    costs = estimate(shape, machine, group_size)
    lengths = [int(2 ** (k / 4)) for k in range(24, 84)]
    ample, short = (Planner(costs, shape.num_layers, bytes_) for bytes_ in (2**60, budget))
    by_time = [ample.plan(length) for length in lengths]
    assert str(by_time[0]) == "tp_sp" and "tp_sp" not in by_time[-1].options
    assert len({str(plan) for plan in by_time}) >= 3

    num_mixed = num_hopeless = 0
    for length in lengths:
        plan = short.plan(length)
        padded = pad_to_multiple(length, group_size)
        head = costs.predict_head(padded, plan.head)
        layers = [costs.predict(option, padded) for option in plan.options]
        held = simulated_peak(layers, head.saved_bytes, 1, head.buffer_bytes)
        assert held == plan.predicted_bytes and plan.fits == (held <= budget)
        num_mixed += plan.fits and len(set(plan.options)) > 1
        num_hopeless += not plan.fits
    assert num_mixed >= 2 and num_hopeless >= 1
    fits_at_full_speed = [length for length in lengths if ample.plan(length).predicted_bytes <= budget]
    assert short.largest_length(2**24) > max(fits_at_full_speed)


@pytest.mark.parametrize(
    ("model", "cluster", "group_size"),
    [("tiny", "cpu-2core", 1), ("tiny", "cpu-2core", 4), ("llama-2-7b", "dgx-a100", 8), ("gpt-13b", "dgx-h100", 4)],
)
def test_costs_are_positive_and_grow_with_length(model, cluster, group_size):
    shape, machine = load(model, cluster)
    costs = estimate(shape, machine, group_size)
    excluded = excluded_options(shape, group_size, machine.attention_materialised)
    assert costs.options == tuple(str(option) for option in all_options() if str(option) not in excluded)
    assert len(costs.options) == 7 * 3 * 3 - (3 if model == "tiny" else 6)
    for option in costs.options:
        short, long = costs.predict(option, 1000), costs.predict(option, 50_000)
        assert 0 < short.milliseconds < long.milliseconds
        assert 0 < short.saved_bytes < long.saved_bytes and 0 < short.workspace_bytes < long.workspace_bytes
    assert 0 < costs.predict_head(1000).milliseconds < costs.predict_head(50_000).milliseconds


def test_recompute_trades_time_for_memory():
    costs = estimate(*load("llama-3-8b", "dgx-h100"), 8)
    for option in (o for o in all_options() if o.recompute == "none"):
        kept, full = costs.predict(str(option), 16_384), costs.predict(f"{option.attention}/{option.mlp}+full", 16_384)
        assert 1.2 * kept.milliseconds < full.milliseconds < 1.5 * kept.milliseconds  # one more forward of three
        assert full.saved_bytes == 16_384 // 8 * 4096 * 2 < kept.saved_bytes
        assert full.workspace_bytes <= kept.saved_bytes + kept.workspace_bytes
        if option.attention not in ("ring", "tp_sp"):
            core = costs.predict(f"{option.attention}/{option.mlp}+selective", 16_384)
            assert kept.milliseconds < core.milliseconds < full.milliseconds
            assert full.saved_bytes < core.saved_bytes < kept.saved_bytes


def test_the_chunked_head_trades_time_for_memory():
    costs = estimate(*load("llama-3-8b", "dgx-h100"), 8)
    short, long = ([costs.predict_head(length, head) for head in costs.heads] for length in (1024, 131_072))
    assert short[1].saved_bytes > short[0].saved_bytes and long[1].saved_bytes < 0.08 * long[0].saved_bytes
    for whole, chunked in (short, long):
        assert whole.milliseconds < chunked.milliseconds < 2 * whole.milliseconds


def test_compute_time_is_that_of_the_flops():
    """Nothing sent, no overhead, endless memory bandwidth: 6 FLOPs a weight and token, 7 a d s^2 for flash."""
    shape, machine = load("llama-3-8b", "dgx-h100")
    values = {field: getattr(machine, field) for field in machine.__dataclass_fields__}
    pure = Cluster(**values | {"memory_bandwidth_bytes_per_s": 1e30, "layer_overhead_us": 0.0})
    flops = 6 * (shape.attention_weights + shape.mlp_weights) * 8192 + 7 * 4096 * 8192**2
    projection = 2 * (4096 + 2 * 8 * 128) * 4096 * 8192
    core = 2 * 4096 * 8192**2
    recomputed = {"ulysses+selective": core, "usp+selective": core, "upipe+selective": projection + core}
    kept = {"tp_sp": 0, "ulysses": 0, "ring": 0, "usp": 0, "upipe": projection}
    for option, again in (kept | recomputed).items():
        found = estimate(shape, pure, 1).predict(option, 8192).milliseconds
        assert found == pytest.approx((flops + again) / 989e12 / 0.6 * 1000, rel=1e-6)


def test_the_batch_counts_like_tokens_where_attention_does_not():
    shape, machine = load("tiny", "cpu-2core")
    one, three = estimate(shape, machine, 2), estimate(shape, machine, 2, micro_batch_size=3)
    for option in ("ulysses", "ring"):
        assert three.predict(option, 1024).saved_bytes == pytest.approx(3 * one.predict(option, 1024).saved_bytes)
    assert three.micro_batch_size == 3


def time_of(model, machine, group_size, option, length):
    shape, cluster = load(model, "dgx-h100")[0], machine if isinstance(machine, Cluster) else load("tiny", machine)[1]
    return estimate(shape, cluster, group_size, [option]).predict(option, length).milliseconds


@pytest.mark.parametrize("option", ["tp_sp", "ulysses", "ring"])
def test_short_sequences_get_slower_with_more_ranks(option):
    """The paper's cancellation of parallel compute by communication (arXiv 2511.13198), and its end at long ones."""
    one, *more = (time_of("gpt-1.3b", "dgx-h100", ranks, option, 256) for ranks in (1, 2, 4, 8))
    assert one < min(more)
    long = [time_of("gpt-1.3b", "dgx-h100", ranks, option, 131_072) for ranks in (1, 2, 4, 8)]
    assert long == sorted(long, reverse=True)


@pytest.mark.parametrize("cluster", ["dgx-a100", "dgx-h100", "h200"])
@pytest.mark.parametrize("length", [8192, 65_536])
def test_ring_is_behind_ulysses_on_fast_links_with_many_key_value_heads(cluster, length):
    assert time_of("llama-2-7b", cluster, 8, "ulysses", length) < time_of("llama-2-7b", cluster, 8, "ring", length)


@pytest.mark.parametrize("length", [65_536, 131_072, 262_144])
def test_ulysses_is_behind_on_slow_links_across_nodes(length):
    """As arXiv 2405.07719 has it: inside a node Ulysses, across nodes a ring, whose hops hide behind attention."""
    fast = load("tiny", "dgx-a100")[1]
    slow = replace(fast, inter_node=Link(2.5e9, 60.0))
    shares = []
    for machine in (fast, slow):
        usp, ulysses = (time_of("llama-3-8b", machine, 16, option, length) for option in ("usp", "ulysses"))
        shares.append(usp / ulysses)
    assert shares[1] < shares[0] and shares[1] < 0.98
    assert time_of("llama-3-8b", slow, 8, "ulysses", length) == time_of("llama-3-8b", fast, 8, "ulysses", length)


def test_options_that_a_shape_cannot_run_are_excluded_with_a_reason():
    grouped = ModelShape(768, 2, 24, 3072, 1000, num_query_groups=4)
    of_rings = {"ring/tp_sp+selective", "ring+selective", "ring/streamed+selective"}
    assert set(excluded_options(grouped, 4)) == of_rings == set(excluded_options(grouped, 1))
    fused = set(excluded_options(grouped, 4, stores_scores=False)) - of_rings
    assert fused == {"tp_sp+selective", "tp_sp/gathered+selective", "tp_sp/streamed+selective"}
    assert "its core keeps only q, k, v" in excluded_options(grouped, 4)["ring+selective"]
    of_one_key = excluded_options(ModelShape(768, 2, 24, 3072, 1000, num_query_groups=1), 4)
    assert of_one_key["usp+selective"] == of_one_key["ring+selective"] and "ulysses+selective" not in of_one_key
    shared = excluded_options(grouped, 8)  # two ranks share each key/value head
    assert set(shared) == of_rings | {str(option) for option in all_options() if option.attention == "metp"}
    assert shared["metp+full"] == "metp cannot deal 4 key/value heads evenly to 8 ranks"
    assert "24 attention heads cannot be dealt evenly to 5 ranks" in excluded_options(grouped, 5)["tp_sp"]
    assert "neither dealt evenly to 6 ranks nor" in excluded_options(grouped, 6)["tp_sp"]
    assert "3073 columns" in excluded_options(ModelShape(768, 2, 24, 3073, 1000), 2)["ring"]
    assert len(excluded_options(grouped, 5)) == len(all_options())


def test_estimates_leave_excluded_options_out_and_say_why_when_none_is_left():
    machine = load("tiny", "cpu-2core")[1]
    grouped = ModelShape(768, 2, 24, 3072, 1000, num_query_groups=4, dtype="fp32")
    assert estimate(grouped, machine, 8, ["ring", "metp", "tp_sp"]).options == ("ring", "tp_sp")
    with pytest.raises(ValueError, match="No option can run this model on 8 ranks: metp cannot deal 4 key/value"):
        estimate(grouped, machine, 8, ["metp", "metp+full"])
    with pytest.raises(ValueError, match="none was asked for"):
        estimate(grouped, machine, 8, [])
    with pytest.raises(ValueError, match="does not exist"):
        estimate(grouped, machine, 8, ["nonsense"])
    with pytest.raises(ValueError, match="group size must be at least 1"):
        estimate(grouped, machine, 0)
