"""What a position of a hybrid pattern follows of its option, by its layer family."""

from __future__ import annotations

from collections.abc import Sequence

from megatron.core.transformer.transformer_config import TransformerConfig

from paradyse_megatron.layers.experts import expert_layers, without_experts
from paradyse_megatron.layers.support import check_supported
from paradyse_megatron.planner.option import Option

ATTENTION, MLP = "*", "-"
FOLLOWING = ATTENTION + MLP
"""Families that follow plans."""


def followed_part(option: Option, family: str) -> Option:
    """What of `option` a position of this family follows; the rest is `tp_sp`."""
    attention = option.attention if family == ATTENTION else "tp_sp"
    mlp = option.mlp if family == MLP else "tp_sp"
    return Option(attention, mlp, option.recompute)


def check_plan(options: Sequence[Option], config: TransformerConfig, pattern: str | None = None) -> None:
    """Raise a ValueError naming the first option that its layer cannot follow.

    Args:
        options: one a layer.
        pattern: one family a layer; None for a GPT, whose layers may differ in having experts.
    """
    if pattern is not None:
        followed = [followed_part(option, family) for option, family in zip(options, pattern, strict=True)]
        return check_supported(followed, without_experts(config))
    has_experts = expert_layers(config)
    check_supported([option for option, experts in zip(options, has_experts, strict=True) if experts], config)
    dense = [option for option, experts in zip(options, has_experts, strict=True) if not experts]
    return check_supported(dense, without_experts(config))
