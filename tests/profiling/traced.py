"""Traces real layers on fake tensors in one process; run by `tests.ranks`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

from paradyse_megatron import Plan, cpu, layer_spec, use_plan

cpu.enable()

from megatron.core import parallel_state  # noqa: E402

from paradyse_megatron.costmodel.cluster import Cluster  # noqa: E402
from paradyse_megatron.costmodel.compose import compose  # noqa: E402
from paradyse_megatron.costmodel.configs import configs_folder, shipped  # noqa: E402
from paradyse_megatron.costmodel.first_principles import estimate  # noqa: E402
from paradyse_megatron.costmodel.model import CostModel  # noqa: E402
from paradyse_megatron.costmodel.setting import Setting  # noqa: E402
from paradyse_megatron.costmodel.shape import ModelShape  # noqa: E402
from paradyse_megatron.layers.prefetch import link_layers  # noqa: E402
from paradyse_megatron.planner.memory import peak_bytes  # noqa: E402
from paradyse_megatron.planner.option import Option  # noqa: E402
from paradyse_megatron.profiling.check import agreement  # noqa: E402
from paradyse_megatron.profiling.counting import Counter  # noqa: E402
from paradyse_megatron.profiling.heads import HeadHeld, run_head  # noqa: E402
from paradyse_megatron.profiling.parts import _let_go, layer_config, run_part  # noqa: E402
from paradyse_megatron.profiling.stand_ins import fuse  # noqa: E402
from paradyse_megatron.profiling.trace import trace_parts  # noqa: E402
from paradyse_megatron.profiling.world import fake_ranks  # noqa: E402


def agreements(shape: ModelShape, cases: list[tuple[int, bool, list[str]]]) -> list[dict[str, list[str]]]:
    """Faults by option, for each (ranks, unfused, options)."""
    dist.destroy_process_group()
    found = []
    for ranks, unfused, texts in cases:
        setting, options = Setting(shape, ranks, 1, unfused), [Option.parse(text) for text in texts]
        parts = trace_parts(setting, options)
        found.append({str(option): agreement(parts, option, setting).faults() for option in options})
    return found


def shipped_counts(name: str, part: str, text: str, seq_length: int) -> dict[str, tuple[Any, Any]]:
    """What a shipped cost model's trace says of a part, and what the part does now."""
    dist.destroy_process_group()
    model = CostModel.load(configs_folder() / "costs" / name)
    setting = Setting(model.shape, model.group_size, 1, "cpu" in name)
    with fake_ranks(model.group_size):
        now = run_part(part, Option.parse(text), setting, seq_length)
    then = model.parts[f"attention {text}" if part == "attention" else f"mlp {Option.parse(text).mlp}"]
    peak = max(held - now.before_bytes for held in now.backward.held_bytes)
    return {
        "saved": (then.saved_bytes(seq_length), now.saved_bytes),
        "peak": (max(term(seq_length) for term in then.backward_peak_bytes), peak),
        "flops": (then.backward.product_flops(seq_length), now.backward.product_flops),
        "moved": (then.forward.moved_bytes(seq_length), now.forward.moved_bytes),
    }


def linked_peaks(shape: ModelShape, ranks: int, texts: list[str], seq_length: int) -> dict[str, tuple[float, float]]:
    """Peak above what was there before: of two real layers that fetch for each other, and as composed from parts."""
    dist.destroy_process_group()
    setting, options = Setting(shape, ranks, 1, True), [Option.parse(text) for text in texts]
    parts = trace_parts(setting, options)
    found = {}
    with fake_ranks(ranks) as group:
        for option in options:
            work = compose(parts, option, "dense", setting)
            composed = 2 * work.saved_bytes(seq_length) + work.workspace_bytes(seq_length)
            found[str(option)] = (_two_layers(option, setting, seq_length, group), composed)
    return found


def _two_layers(option: Option, setting: Setting, seq_length: int, group: dist.ProcessGroup) -> int:
    parallel_state.get_global_memory_buffer().buffer.clear()
    config = layer_config(setting.shape, setting.group_size)
    with FakeTensorMode(allow_non_fake_inputs=True), Counter() as counter:
        spec = layer_spec(config).submodules.layer_specs[0]
        layers = [spec.module(config, spec.submodules, layer_number=number) for number in (1, 2)]
        link_layers(layers, group)
        hidden = torch.empty(seq_length // setting.group_size, 1, config.hidden_size, dtype=config.params_dtype)
        before, part = counter.held_bytes, counter.begin()
        with use_plan(Plan((option, option))):
            output = layers[1](layers[0](hidden.requires_grad_(), None)[0], None)[0]
        output.backward(torch.ones_like(output))
    return max(part.held_bytes) - before


def mixed_peaks(
    shape: ModelShape, ranks: int, unfused: bool, plans: list[str], seq_length: int
) -> dict[str, tuple[int, int]]:
    """Peak above what was there before: of real linked layers once their buffers are made, and as predicted."""
    dist.destroy_process_group()
    setting = Setting(shape, ranks, 1, unfused)
    parsed = {text: Plan.parse(text, shape.num_layers) for text in plans}
    options = list(dict.fromkeys(option for plan in parsed.values() for option in plan.layer_options))
    cluster = replace(Cluster.from_yaml(shipped("clusters", "cpu-2core")), attention_materialised=unfused)
    costs = estimate(shape, cluster, ranks, [str(each) for each in options], parts=trace_parts(setting, options))
    found = {}
    with fake_ranks(ranks) as group:
        for text, plan in parsed.items():
            predicted = peak_bytes([costs.predict(option, seq_length) for option in plan.options])
            found[text] = _again(plan, setting, seq_length, group), predicted
    return found


def _again(plan: Plan, setting: Setting, seq_length: int, group: dist.ProcessGroup) -> int:
    """Of the second of two micro-batches; Megatron's buffer, which the first has made, counts."""
    parallel_state.get_global_memory_buffer().buffer.clear()
    config = layer_config(setting.shape, setting.group_size, num_layers=len(plan))
    with FakeTensorMode(allow_non_fake_inputs=True), Counter() as counter:
        spec = layer_spec(config).submodules.layer_specs[0]
        layers = [spec.module(config, spec.submodules, layer_number=number + 1) for number in range(len(plan))]
        for layer in layers:
            if not setting.unfused:
                fuse(layer, config)
            for parameter in layer.parameters():
                parameter.register_post_accumulate_grad_hook(_let_go)
        link_layers(layers, group)
        before = counter.held_bytes
        for _ in range(2):
            part = counter.begin()
            hidden = torch.empty(seq_length // setting.group_size, 1, config.hidden_size, dtype=config.params_dtype)
            first = hidden.requires_grad_()
            with use_plan(plan):
                for layer in layers:
                    hidden = layer(hidden, None)[0]
            loss = (hidden * 1.0).sum()
            del hidden  # as in a model, only its graph holds it, and nothing the gradient that comes back
            loss.backward()
    return max(part.held_bytes) - before - first.nbytes


def heads(cases: list[tuple[ModelShape, int, int, int]]) -> list[dict[str, HeadHeld]]:
    """What each head, given as (shape, sequence length, ranks, batch), holds "whole" and "chunked"."""
    dist.destroy_process_group()
    found = []
    for shape, seq_length, ranks, batch in cases:
        setting = Setting(shape, ranks, batch, unfused=False)
        with fake_ranks(ranks) as group:
            found.append({head: run_head(head, setting, seq_length, group) for head in ("whole", "chunked")})
    return found
