"""Which options a model's shape allows on P ranks."""

from __future__ import annotations

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.option import Option, all_options


def excluded_options(shape: ModelShape, group_size: int) -> dict[str, str]:
    """Options of this version that the shape cannot run on `group_size` ranks, each with the reason as a clause."""
    reasons = {str(option): excluded_reason(option, shape, group_size) for option in all_options()}
    return {text: reason for text, reason in reasons.items() if reason is not None}


def excluded_reason(option: Option, shape: ModelShape, group_size: int) -> str | None:
    """Why the shape cannot run `option`, as a clause; None when it can."""
    heads, groups = shape.num_attention_heads, shape.num_query_groups
    if heads % group_size:
        return f"{heads} attention heads cannot be dealt evenly to {group_size} ranks"
    if shape.ffn_hidden_size % group_size:
        return f"an MLP of {shape.ffn_hidden_size} columns cannot be cut evenly for {group_size} ranks"
    if groups % group_size and group_size % groups:
        return f"{groups} key/value heads can be neither dealt evenly to {group_size} ranks nor each shared by as many"
    if (heads + 2 * groups) * shape.head_dim % group_size:
        return f"{heads} query heads and {groups} key/value heads have no even number of rows for {group_size} ranks"
    if option.attention == "metp" and groups % group_size:
        return f"{option.attention} cannot deal {groups} key/value heads evenly to {group_size} ranks"
    return None
