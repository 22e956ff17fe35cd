"""Bytes of one real layer on one of P ranks at any length, without hardware: fake tensors, fake peers."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.testing._internal.distributed.fake_pg import FakeStore

from paradyse_megatron import Plan, cpu, layer_spec, use_plan

cpu.enable()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

from paradyse_megatron.profiling.stand_ins import FlashAttention  # noqa: E402
from tests.layers.models import start_model_parallel  # noqa: E402

LLAMA: dict[str, Any] = {
    "normalization": "RMSNorm",
    "activation_func": F.silu,
    "gated_linear_unit": True,
    "add_bias_linear": False,
}
GPT: dict[str, Any] = {"normalization": "LayerNorm", "activation_func": F.gelu, "add_bias_linear": True}
SMALL: dict[str, Any] = {"hidden_size": 256, "num_attention_heads": 8, "ffn_hidden_size": 1024}
SHAPES = {
    "7b": LLAMA | {"hidden_size": 4096, "num_attention_heads": 32, "ffn_hidden_size": 11008},
    "llama": LLAMA | SMALL,
    "gpt": GPT | SMALL,
    "llama, small mlp": LLAMA | SMALL | {"ffn_hidden_size": 64},
    "gpt, small mlp": GPT | SMALL | {"ffn_hidden_size": 64},
}
"""Llama's have rotary embedding; the 7B one's `tp_sp` has flash attention, the others' stores scores."""


class Case(NamedTuple):
    """One layer, and how it runs."""

    shape: str
    num_groups: int
    dtype: str
    group_size: int
    option: str
    seq_length: int = 4096


def held_bytes(cases: list[Case]) -> dict[Case, tuple[int, int]]:
    """Saved bytes and peak of each: input included, parameters and Megatron's global buffer not. In one process."""
    found = {}
    for group_size in sorted({case.group_size for case in cases}):
        os.environ["LOCAL_WORLD_SIZE"] = str(group_size)  # one node
        dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=group_size)
        start_model_parallel(group_size)
        found |= {case: _trace(case) for case in cases if case.group_size == group_size}
        parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    return found


def _trace(case: Case) -> tuple[int, int]:
    parallel_state.get_global_memory_buffer().buffer.clear()
    config = _config(case)
    spec = layer_spec(config).submodules.layer_specs[0]
    with FakeTensorMode(allow_non_fake_inputs=True), MemTracker() as tracker:
        layer = spec.module(config, spec.submodules)
        if case.shape == "7b" and Plan.parse(case.option, 1).layer_options[0].attention == "tp_sp":
            layer.self_attention.core_attention = FlashAttention()
        rotary = torch.empty(case.seq_length, 1, 1, config.kv_channels) if "gpt" not in case.shape else None
        before = _total(tracker, "current")
        leaf = torch.empty(1, dtype=config.params_dtype, requires_grad=True)
        hidden = leaf.expand(case.seq_length // case.group_size, 1, config.hidden_size).contiguous()
        with use_plan(Plan.parse(case.option, 1)):
            output = layer(hidden, None, rotary_pos_emb=rotary)[0]
        del hidden  # held by whoever saved it, if anybody
        stays = sum(buffer.nbytes for buffer in parallel_state.get_global_memory_buffer().buffer.values())
        saved = _total(tracker, "current") - before - output.nbytes - stays
        output.sum().backward()
        return saved, _total(tracker, "peak") - before


def _config(case: Case) -> TransformerConfig:
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[case.dtype]
    return TransformerConfig(
        num_layers=1,
        num_query_groups=case.num_groups,
        params_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        tensor_model_parallel_size=case.group_size,
        sequence_parallel=case.group_size > 1,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
        gradient_accumulation_fusion=False,
        use_cpu_initialization=True,
        perform_initialization=False,
        **SHAPES[case.shape],
    )


def _total(tracker: MemTracker, moment: str) -> int:
    return sum(of_device["Total"] for of_device in tracker.get_tracker_snapshot(moment).values())
