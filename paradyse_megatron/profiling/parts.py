"""Runs the attention or the MLP of a real Transformer layer, of any size, on fake tensors, and counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayerSubmodules
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from paradyse_megatron.costmodel.setting import Setting
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.layers.active import use_plan
from paradyse_megatron.layers.spec import dynamic_submodules
from paradyse_megatron.layers.transformer_layer import DynamicTransformerLayer
from paradyse_megatron.planner.option import Option
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.profiling.counting import Counter, Part
from paradyse_megatron.profiling.stand_ins import fuse

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Counts:
    """What one part of a layer did, between an input that is there before and an output that is there afterwards.

    Attributes:
        before_bytes: held before it, the input included.
        saved_bytes: held more between forward and backward, the output included, Megatron's buffers not.
        buffer_bytes: of these buffers, which stay for the next layer to use.
        forward, backward: of the two directions.
    """

    before_bytes: int
    saved_bytes: int
    buffer_bytes: int
    forward: Part
    backward: Part


def run_part(part: str, option: Option, setting: Setting, seq_length: int) -> Counts:
    """Forward and backward of a layer that has one part only; inside `fake_ranks` of the setting's size.

    Args:
        part: "attention", "mlp", or "moe" for the MLP of experts.
    """
    parallel_state.get_global_memory_buffer().buffer.clear()
    shape, local_tokens = setting.shape, seq_length // setting.group_size
    config = layer_config(shape, setting.group_size, experts=part == "moe")
    balanced = seq_length * setting.batch * shape.experts_per_token // max(1, shape.num_experts)
    with FakeTensorMode(allow_non_fake_inputs=True), Counter(balanced) as counter:
        layer = _make_layer(part, config, setting)
        hidden = torch.empty(local_tokens, setting.batch, shape.hidden_size, dtype=config.params_dtype)
        rotary = torch.empty(seq_length, 1, 1, shape.head_dim) if shape.rotary else None
        with use_plan(Plan((option,))):
            return _run(counter, layer, hidden.requires_grad_(), rotary)


def _run(counter: Counter, layer: Any, hidden: Tensor, rotary: Tensor | None) -> Counts:
    before_bytes, forward = counter.held_bytes, counter.begin()
    output = layer(hidden, None, rotary_pos_emb=rotary)[0]
    buffer_bytes = sum(tensor.nbytes for tensor in parallel_state.get_global_memory_buffer().buffer.values())
    saved_bytes = counter.held_bytes - before_bytes - buffer_bytes
    grad = torch.ones_like(output)
    backward = counter.begin()
    output.backward(grad)
    return Counts(before_bytes, saved_bytes, buffer_bytes, forward, backward)


def _make_layer(part: str, config: TransformerConfig, setting: Setting) -> Any:
    """A parameter's gradient is let go as soon as it is complete, as Megatron's DDP does."""
    whole = dynamic_submodules(config)
    if part == "attention":
        submodules = TransformerLayerSubmodules(
            input_layernorm=whole.input_layernorm,
            self_attention=whole.self_attention,
            self_attn_bda=get_bias_dropout_add,
        )
    else:
        submodules = TransformerLayerSubmodules(
            pre_mlp_layernorm=whole.pre_mlp_layernorm, mlp=whole.mlp, mlp_bda=get_bias_dropout_add
        )
    layer = DynamicTransformerLayer(config, submodules)
    if not setting.unfused:
        fuse(layer, config)
    for parameter in layer.parameters():
        parameter.register_post_accumulate_grad_hook(_let_go)
    return layer


def _let_go(parameter: Tensor) -> None:
    parameter.grad = None


def layer_config(
    shape: ModelShape,
    group_size: int,
    experts: bool = False,
    num_layers: int = 1,
    transformer_impl: str = "local",
) -> TransformerConfig:
    """Megatron's configuration of a model of this shape, as far as one layer is concerned.

    Experts get equally many tokens each: a capacity of exactly their share, which nothing exceeds.
    """
    of_experts = {
        "num_moe_experts": shape.num_experts,
        "moe_router_topk": shape.experts_per_token,
        "moe_ffn_hidden_size": shape.expert_ffn_hidden_size,
        "moe_token_dispatcher_type": "alltoall",
        "moe_expert_capacity_factor": 1.0,
        "moe_pad_expert_input_to_capacity": True,
        "moe_router_load_balancing_type": "none",
    }
    return TransformerConfig(
        num_layers=num_layers,
        hidden_size=shape.hidden_size,
        ffn_hidden_size=shape.ffn_hidden_size,
        num_attention_heads=shape.num_attention_heads,
        num_query_groups=shape.num_query_groups,
        kv_channels=shape.head_dim,
        gated_linear_unit=shape.gated_mlp,
        activation_func=F.silu if shape.gated_mlp else F.gelu,
        add_bias_linear=shape.add_bias,
        normalization="RMSNorm" if shape.rms_norm else "LayerNorm",
        params_dtype=DTYPES[shape.dtype],
        bf16=shape.dtype == "bf16",
        fp16=shape.dtype == "fp16",
        tensor_model_parallel_size=group_size,
        sequence_parallel=group_size > 1,
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
        transformer_impl=transformer_impl,
        **(of_experts if experts else {}),
    )
