"""Bytes of one real layer on one of P ranks at any length, without hardware: fake tensors, fake peers."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.testing._internal.distributed.fake_pg import FakeStore

from paradyse_megatron import Plan, cpu, layer_spec, use_plan

cpu.enable()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

from tests.layers.models import start_model_parallel  # noqa: E402

SHAPE_7B: dict[str, Any] = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "ffn_hidden_size": 11008,
    "normalization": "RMSNorm",
    "activation_func": F.silu,
    "gated_linear_unit": True,
    "add_bias_linear": False,
}


def held_bytes(
    options: list[str], group_counts: list[int], seq_length: int, group_size: int
) -> dict[int, dict[str, tuple[int, int]]]:
    """Saved bytes and peak of a 7B layer in bf16, above parameters and input; `tp_sp` with flash attention.

    By number of key/value heads, then by option.
    """
    dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=group_size)
    start_model_parallel(group_size)
    found = {
        num_groups: {option: _trace(option, num_groups, seq_length, group_size) for option in options}
        for num_groups in group_counts
    }
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    return found


def _trace(option: str, num_groups: int, seq_length: int, group_size: int) -> tuple[int, int]:
    parallel_state.get_global_memory_buffer().buffer.clear()
    config = TransformerConfig(
        num_layers=1,
        num_query_groups=num_groups,
        params_dtype=torch.bfloat16,
        bf16=True,
        tensor_model_parallel_size=group_size,
        sequence_parallel=True,
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
        **SHAPE_7B,
    )
    spec = layer_spec(config).submodules.layer_specs[0]
    with FakeTensorMode(allow_non_fake_inputs=True), MemTracker() as tracker:
        layer = spec.module(config, spec.submodules)
        if Plan.parse(option, 1).layer_options[0].attention == "tp_sp":
            layer.self_attention.core_attention = _FlashAttention()
        rotary = torch.empty(seq_length, 1, 1, 128, dtype=torch.bfloat16)
        hidden = torch.empty(seq_length // group_size, 1, config.hidden_size, dtype=torch.bfloat16, requires_grad=True)
        before = _total(tracker, "current")
        with use_plan(Plan.parse(option, 1)):
            output = layer(hidden, None, rotary_pos_emb=rotary)[0]
        saved = _total(tracker, "current") - before - output.nbytes
        output.sum().backward()
        return saved, _total(tracker, "peak") - before


class _FlashAttention(torch.nn.Module):
    """Megatron's core attention without its stored scores."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """[s, b, heads, d] to [s, b, heads * d]."""
        q, k, v = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        output = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return output.permute(2, 0, 1, 3).flatten(2)


def _total(tracker: MemTracker, moment: str) -> int:
    return sum(of_device["Total"] for of_device in tracker.get_tracker_snapshot(moment).values())
