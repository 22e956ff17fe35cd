"""Our layers in megatron-core's HybridModel: a stack written as a pattern, one layer family a position.

A plan has one option a position: `*` (attention) follows its attention part, `-` (MLP) its MLP part, `E` (mixture of
experts) keeps Megatron's expert MLP, and any other family (`M` Mamba, `G` gated delta net, `D` sparse attention) runs
as Megatron runs it, whatever its option says. So a GPT block `*-` has two options where GPTModel has one.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.models.hybrid.hybrid_block import HybridStack
from megatron.core.models.hybrid.hybrid_layer_specs import hybrid_stack_spec as stock_stack_spec
from megatron.core.transformer import transformer_block
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayerSubmodules

from paradyse_megatron.layers.norm import norm_for
from paradyse_megatron.layers.spec import dynamic_submodules
from paradyse_megatron.layers.transformer_layer import DynamicTransformerLayer

logger = logging.getLogger(__name__)
_FOLLOWING = "*-E"


class DynamicHybridStack(HybridStack):
    """`HybridStack` whose last norm accepts sequence parallelism without Transformer Engine."""

    def __init__(self, config: TransformerConfig, *args: Any, post_layer_norm: bool = True, **kwargs: Any):
        super().__init__(config, *args, post_layer_norm=False, **kwargs)
        self.post_layer_norm = post_layer_norm
        if self.post_process and post_layer_norm:
            norm = norm_for(transformer_block.LayerNormImpl, config)
            self.final_norm = norm(config=config, hidden_size=config.hidden_size, eps=config.layernorm_epsilon)
        others = sorted(set(self.layer_type_list) - set(_FOLLOWING))
        if others:
            logger.warning("Layers of the families %s run as Megatron runs them under every plan.", ", ".join(others))


def hybrid_stack_spec(config: Any) -> ModuleSpec:
    """The spec for `HybridModel(hybrid_stack_spec=...)` or `--spec` of Megatron's hybrid entry.

    Args:
        config: a `TransformerConfig`, or megatron.training's `HybridModelConfig` around one.
    """
    config = getattr(config, "transformer", config)
    layer = dynamic_submodules(config)
    attention = TransformerLayerSubmodules(
        input_layernorm=layer.input_layernorm, self_attention=layer.self_attention, self_attn_bda=get_bias_dropout_add
    )
    mlp = TransformerLayerSubmodules(
        pre_mlp_layernorm=layer.pre_mlp_layernorm, mlp=layer.mlp, mlp_bda=get_bias_dropout_add
    )
    return ModuleSpec(
        module=DynamicHybridStack,
        submodules=replace(
            stock_stack_spec.submodules,
            attention_layer=ModuleSpec(module=DynamicTransformerLayer, submodules=attention),
            mlp_layer=ModuleSpec(module=DynamicTransformerLayer, submodules=mlp),
            moe_layer=ModuleSpec(module=DynamicTransformerLayer, submodules=mlp),
        ),
    )
