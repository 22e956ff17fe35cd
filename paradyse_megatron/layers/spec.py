"""Specs that put our layers into megatron-core's models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import transformer_block
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import (
    TransformerBlock,
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

from paradyse_megatron.compat.layers import with_mlp_class
from paradyse_megatron.layers import transformer_engine
from paradyse_megatron.layers.attention import DynamicSelfAttention
from paradyse_megatron.layers.experts import stage_has_experts, without_experts
from paradyse_megatron.layers.mlp import DynamicMLP
from paradyse_megatron.layers.norm import norm_for
from paradyse_megatron.layers.transformer_layer import DynamicTransformerLayer


def layer_spec(config: Any, vp_stage: int | None = None, pp_rank: int | None = None) -> ModuleSpec:
    """The spec of this pipeline stage's decoder, for `GPTModel(transformer_layer_spec=...)` or `--spec`.

    It names a whole `TransformerBlock`, as the norm after the last layer has to accept sequence parallelism too.

    Args:
        config: a `TransformerConfig`, or megatron.training's `GPTModelConfig` around one.
        vp_stage: virtual pipeline stage, as Megatron passes it.
        pp_rank: pipeline stage; by default this process's.
    """
    config = getattr(config, "transformer", config)
    return _block_spec(DynamicTransformerLayer, dynamic_submodules, config, vp_stage, pp_rank)


def stock_layer_spec(config: Any, vp_stage: int | None = None, pp_rank: int | None = None) -> ModuleSpec:
    """Megatron's own layers, with our norm where theirs refuses sequence parallelism: what to compare with."""
    config = getattr(config, "transformer", config)
    return _block_spec(TransformerLayer, stock_submodules, config, vp_stage, pp_rank)


def dynamic_submodules(config: TransformerConfig) -> TransformerLayerSubmodules:
    """Megatron's own layer with our attention and MLP, and where needed our norm, in it."""
    transformer_engine.refuse_overlaps(config)
    submodules = stock_submodules(config)
    submodules.self_attention = ModuleSpec(
        module=DynamicSelfAttention,
        params=dict(submodules.self_attention.params),
        submodules=submodules.self_attention.submodules,
    )
    submodules.mlp = with_mlp_class(submodules.mlp, DynamicMLP)
    return submodules


def _block_spec(
    layer_class: type[TransformerLayer],
    submodules_of: Callable[[TransformerConfig], TransformerLayerSubmodules],
    config: TransformerConfig,
    vp_stage: int | None,
    pp_rank: int | None,
) -> ModuleSpec:
    with_experts = ModuleSpec(module=layer_class, submodules=submodules_of(config))
    dense = ModuleSpec(module=layer_class, submodules=submodules_of(without_experts(config)))
    has_experts = stage_has_experts(config, get_num_layers_to_build(config, vp_stage, pp_rank), vp_stage, pp_rank)
    layers = [with_experts if experts else dense for experts in has_experts]
    norm = norm_for(transformer_block.LayerNormImpl, config)
    return ModuleSpec(
        module=TransformerBlock, submodules=TransformerBlockSubmodules(layer_specs=layers, layer_norm=norm)
    )


def stock_submodules(config: TransformerConfig) -> TransformerLayerSubmodules:
    """Megatron's own layer as `transformer_impl` says, with our norm where needed."""
    if transformer_engine.uses_transformer_engine(config):
        submodules = copy.copy(transformer_engine.stock_submodules(config))
    else:
        submodules = copy.copy(_local_submodules(config))
    submodules.input_layernorm = norm_for(submodules.input_layernorm, config)
    submodules.pre_mlp_layernorm = norm_for(submodules.pre_mlp_layernorm, config)
    attention = copy.copy(submodules.self_attention.submodules)
    if config.qk_layernorm:
        attention.q_layernorm = norm_for(attention.q_layernorm, config)
        attention.k_layernorm = norm_for(attention.k_layernorm, config)
    stock_attention = submodules.self_attention
    submodules.self_attention = ModuleSpec(
        module=stock_attention.module, params=dict(stock_attention.params), submodules=attention
    )
    return submodules


def _local_submodules(config: TransformerConfig) -> TransformerLayerSubmodules:
    return get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts,
        moe_grouped_gemm=config.moe_grouped_gemm,
        qk_layernorm=config.qk_layernorm,
        normalization=config.normalization,
        qk_l2_norm=getattr(config, "qk_l2_norm", False),
    ).submodules
