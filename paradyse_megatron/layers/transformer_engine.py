"""Transformer Engine's layers (`--transformer-impl transformer_engine`) under plans.

`tp_sp` calls them as they are. The other strategies do not call them but read their parameters, by public attributes:
`weight` and `bias` as of Megatron's own linear layers, and of a LayerNormLinear the norm in front of the projection,
`layer_norm_weight` and `layer_norm_bias`, which they apply to their own tokens. The gradients of those are a rank's
share, and Transformer Engine marks them as `sequence_parallel` wherever a rank has only some of the tokens, so
Megatron's `finalize_model_grads` sums them whichever way they came about.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.extensions.transformer_engine import HAVE_TE
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayerSubmodules
from torch import Tensor

logger = logging.getLogger(__name__)


def uses_transformer_engine(config: TransformerConfig) -> bool:
    """Whether a model's layers are Transformer Engine's: where it is installed, as `transformer_impl` says."""
    if config.transformer_impl == "transformer_engine" and not HAVE_TE:
        _say_that_it_is_missing()
    return HAVE_TE and config.transformer_impl == "transformer_engine"


def stock_submodules(config: TransformerConfig) -> TransformerLayerSubmodules:
    """Megatron's own layer out of Transformer Engine's modules."""
    asked = {
        "use_te_activation_func": config.use_te_activation_func,
        "use_te_op_fuser": getattr(config, "use_transformer_engine_op_fuser", False),
    }
    spec = get_gpt_layer_with_transformer_engine_spec(
        num_experts=config.num_moe_experts,
        moe_grouped_gemm=config.moe_grouped_gemm,
        qk_layernorm=config.qk_layernorm,
        qk_l2_norm=getattr(config, "qk_l2_norm", False),
        **{keyword: True for keyword, value in asked.items() if value},
    )
    return spec.submodules


def refuse_overlaps(config: TransformerConfig) -> None:
    """Raise a ValueError for what Transformer Engine does around a call of its layers, since most plans do not call."""
    for field, flag in (
        ("tp_comm_overlap", "--tp-comm-overlap"),
        ("delay_wgrad_compute", "--delay-wgrad-compute"),
        ("use_transformer_engine_op_fuser", "--use-transformer-engine-op-fuser"),
        ("use_kitchen", "--use-kitchen"),
        ("cpu_offloading", "--cpu-offloading-num-layers"),
    ):
        if getattr(config, field, False):
            raise ValueError(
                f"{flag} and --dynamic-parallel do not work together: it lives inside Transformer Engine's layers, "
                "which most strategies read but do not call. Leave it out."
            )


def normalised(linear: Any, hidden: Tensor) -> Tensor:
    """The input of a linear layer's product: [t, b, h] through the norm that the layer holds, if it holds one."""
    weight = getattr(linear, "layer_norm_weight", None)
    if weight is None:
        return hidden
    bias = getattr(linear, "layer_norm_bias", None)
    if not linear.zero_centered_gamma:
        return _norm(linear, hidden, weight, bias)
    # 1 + gamma in half precision would round gamma away; Transformer Engine adds in fp32 too.
    precise = torch.promote_types(hidden.dtype, torch.float32)
    bias = None if bias is None else bias.to(precise)
    return _norm(linear, hidden.to(precise), 1 + weight.to(precise), bias).to(hidden.dtype)


def _norm(linear: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if linear.normalization == "RMSNorm":
        return F.rms_norm(hidden, weight.shape, weight, linear.eps)
    return F.layer_norm(hidden, weight.shape, weight, bias, linear.eps)


@functools.cache
def _say_that_it_is_missing() -> None:
    logger.warning(
        "Transformer Engine is not installed, so layers are Megatron's local ones: pip install "
        "transformer-engine[pytorch], or set transformer_impl to 'local' to say that they should be."
    )
