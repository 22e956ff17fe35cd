"""Our layers in megatron-core's HybridModel: a stack written as a pattern, one layer family a position.

A plan has one option a position: `*` (attention) follows its attention part, `-` (MLP) its MLP part. Any other family
(`E` mixture of experts, `M` Mamba, `G` gated delta net, `D` sparse attention) runs as Megatron runs it, which is
`tp_sp`, whatever its option says. So a GPT block `*-` has two options where GPTModel has one.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.models.hybrid.hybrid_block import HybridStack
from megatron.core.models.hybrid.hybrid_layer_specs import hybrid_stack_spec as megatron_stack_spec
from megatron.core.transformer import transformer_block
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

from paradyse_megatron.layers.experts import without_experts
from paradyse_megatron.layers.families import FOLLOWING
from paradyse_megatron.layers.norm import norm_for
from paradyse_megatron.layers.spec import dynamic_submodules, stock_submodules
from paradyse_megatron.layers.transformer_layer import DynamicTransformerLayer

logger = logging.getLogger(__name__)


class LocalHybridStack(HybridStack):
    """`HybridStack` whose last norm needs no Transformer Engine, and accepts sequence parallelism without."""

    def __init__(self, config: TransformerConfig, *args: Any, post_layer_norm: bool = True, **kwargs: Any):
        super().__init__(config, *args, post_layer_norm=False, **kwargs)
        self.post_layer_norm = post_layer_norm
        if self.post_process and post_layer_norm:
            norm = norm_for(transformer_block.LayerNormImpl, config)
            self.final_norm = norm(config=config, hidden_size=config.hidden_size, eps=config.layernorm_epsilon)


class DynamicHybridStack(LocalHybridStack):
    """A stack that says which of its layers follow no plan."""

    def __init__(self, config: TransformerConfig, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)
        others = "".join(sorted(set(self.layer_type_list) - set(FOLLOWING)))
        if others:
            _say_who_follows_no_plan(others)


def hybrid_stack_spec(config: Any) -> ModuleSpec:
    """The spec for `HybridModel(hybrid_stack_spec=...)`.

    In a script like Megatron's `pretrain_hybrid.py`, set `hybrid_stack_spec` of the model's configuration to this
    function's result: unlike that of a GPT, `--spec` of a hybrid model cannot name a function (up to 0.19).

    Args:
        config: a `TransformerConfig`, or megatron.training's `HybridModelConfig` around one.
    """
    return _stack_spec(DynamicHybridStack, DynamicTransformerLayer, dynamic_submodules, config)


def stock_hybrid_stack_spec(config: Any) -> ModuleSpec:
    """Megatron's own local layers, with our norm where theirs refuses sequence parallelism: what to compare with."""
    return _stack_spec(LocalHybridStack, TransformerLayer, stock_submodules, config)


def _stack_spec(
    stack: type[HybridStack],
    layer: type[TransformerLayer],
    submodules_of: Callable[[TransformerConfig], TransformerLayerSubmodules],
    config: Any,
) -> ModuleSpec:
    """Each position is half of a GPT layer, and stored under the names that the half has there."""
    config = getattr(config, "transformer", config)
    dense = submodules_of(without_experts(config))
    attention = TransformerLayerSubmodules(
        input_layernorm=dense.input_layernorm,
        self_attention=dense.self_attention,
        self_attn_bda=get_bias_dropout_add,
        sharded_state_dict_keys_map=dense.sharded_state_dict_keys_map,
    )
    return ModuleSpec(
        module=stack,
        submodules=replace(
            megatron_stack_spec.submodules,
            attention_layer=ModuleSpec(module=layer, submodules=attention),
            mlp_layer=ModuleSpec(module=layer, submodules=_mlp_half(dense)),
            moe_layer=ModuleSpec(module=layer, submodules=_mlp_half(submodules_of(config))),
        ),
    )


def _mlp_half(whole: TransformerLayerSubmodules) -> TransformerLayerSubmodules:
    return TransformerLayerSubmodules(
        pre_mlp_layernorm=whole.pre_mlp_layernorm,
        mlp=whole.mlp,
        mlp_bda=get_bias_dropout_add,
        sharded_state_dict_keys_map=whole.sharded_state_dict_keys_map,
    )


@functools.cache
def _say_who_follows_no_plan(families: str) -> None:
    """Once, however many stacks this process builds."""
    logger.warning("Layers of the families %s run as Megatron runs them (tp_sp) under every plan.", ", ".join(families))
