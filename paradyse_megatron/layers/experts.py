"""Which layers of a model are mixtures of experts: those keep Megatron's own MLP, and so the MLP part `tp_sp`."""

from __future__ import annotations

import copy

from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset


def expert_layers(config: TransformerConfig) -> list[bool]:
    """For each layer of a GPT whether it has experts, as `--moe-layer-freq` says."""
    if not config.num_moe_experts:
        return [False] * config.num_layers
    frequency = config.moe_layer_freq
    if isinstance(frequency, int):
        return [layer % frequency == 0 for layer in range(config.num_layers)]
    if len(frequency) != config.num_layers:
        raise ValueError(f"--moe-layer-freq is for {len(frequency)} layers, but the model has {config.num_layers}.")
    return [bool(has_experts) for has_experts in frequency]


def without_experts(config: TransformerConfig) -> TransformerConfig:
    """The configuration of the dense layers of a model that has experts elsewhere."""
    dense = copy.copy(config)
    dense.num_moe_experts = None
    return dense


def stage_has_experts(
    config: TransformerConfig, num_layers: int, vp_stage: int | None = None, pp_rank: int | None = None
) -> list[bool]:
    """`expert_layers` of the `num_layers` layers of one (virtual) pipeline stage."""
    if not config.num_moe_experts:
        return [False] * num_layers
    first = get_transformer_layer_offset(config, vp_stage, pp_rank)
    return expert_layers(config)[first : first + num_layers]
