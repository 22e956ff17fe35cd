"""Which options a model can follow, decided from its configuration before anything is built or sent."""

from __future__ import annotations

import torch.nn.functional as F
from megatron.core.transformer.transformer_config import TransformerConfig

from paradyse_megatron.costmodel.support import nothing_to_recompute
from paradyse_megatron.planner.option import Option


def unsupported_reason(option: Option, config: TransformerConfig) -> str | None:
    """Why layers of `config` cannot follow `option`, as a clause; None if they can."""
    reason = quantised_reason(option, config) or attention_reason(option, config)
    return reason or (_mlp_reason(config) if option.mlp != "tp_sp" else None)


def attention_reason(option: Option, config: TransformerConfig) -> str | None:
    """Why attention cannot follow `option`, as a clause; None if it can. Megatron's own path always can."""
    if option.attention == "tp_sp":
        return None
    num_groups = config.num_query_groups or config.num_attention_heads
    lean = nothing_to_recompute(option, config.tensor_model_parallel_size, num_groups)
    return _attention_reason(option.attention, config) or lean


def quantised_reason(option: Option, config: TransformerConfig) -> str | None:
    """Why `option` cannot be followed in fp8 or fp4, which only Transformer Engine's own forward computes; or None."""
    flag = "--fp8-format" if config.fp8 else "--fp4-format" if getattr(config, "fp4", None) else None
    if flag and (option.attention, option.mlp) != ("tp_sp", "tp_sp"):
        return f"{flag} works in tp_sp only"
    if flag and option.recompute != "none":
        return f"{flag} works without recompute only"
    return None


def check_supported(options: list[Option], config: TransformerConfig) -> None:
    """Raise a ValueError naming the first option that the model cannot follow."""
    for option in dict.fromkeys(options):
        reason = unsupported_reason(option, config)
        if reason:
            raise ValueError(
                f"The strategy '{option}' does not work with this model: {reason}. Choose another one in "
                "--paradyse-plan or --paradyse-strategies."
            )


def _attention_reason(attention: str, config: TransformerConfig) -> str | None:
    num_ranks, num_groups = config.tensor_model_parallel_size, config.num_query_groups or config.num_attention_heads
    is_uneven = num_groups % num_ranks != 0
    is_odd = is_uneven and num_ranks % num_groups != 0
    found = {
        "attention dropout is not available in it (--attention-dropout 0 turns it off)": config.attention_dropout > 0,
        "it has no multi-latent attention": config.multi_latent_attention,
        "it knows causal attention only, not a sliding window": config.window_size is not None,
        "it has no attention sinks (softmax_type)": getattr(config, "softmax_type", "vanilla") != "vanilla",
        "it has no attention output gate": getattr(config, "attention_output_gate", False),
        "it does not tell the largest logit, which QK clipping and --log-max-attention-logit ask for": (
            getattr(config, "qk_clip", False) or getattr(config, "log_max_attention_logit", False)
        ),
        f"{num_groups} key/value heads cannot be dealt evenly to {num_ranks} ranks": attention == "metp" and is_uneven,
        f"{num_groups} key/value heads can be neither dealt evenly to {num_ranks} ranks nor shared evenly": is_odd,
    }
    return next((reason for reason, holds in found.items() if holds), None)


def _mlp_reason(config: TransformerConfig) -> str | None:
    found = {
        "mixture-of-experts layers keep Megatron's own MLP (write e.g. ulysses/tp_sp)": bool(config.num_moe_experts),
        "Transformer Engine's activation function needs its own MLP": config.use_te_activation_func,
        "a custom activation function is not supported": config.activation_func not in (F.gelu, F.silu, F.relu)
        and not callable(config.activation_func),
    }
    return next((reason for reason, holds in found.items() if holds), None)
