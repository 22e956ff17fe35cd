"""Which options a model's shape allows on P ranks."""

from __future__ import annotations

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.layouts.subgroups import ulysses_degree
from paradyse_megatron.planner.option import Option, all_options


def excluded_options(
    shape: ModelShape, group_size: int, stores_scores: bool = True, kind: str | None = None
) -> dict[str, str]:
    """Options of this version that the shape cannot run on `group_size` ranks, each with the reason as a clause.

    Args:
        stores_scores: whether Megatron's attention core does, as its local one, unlike fused ones.
        kind: of the layers that are to run it; None for any that the model has.
    """
    kinds = shape.kinds if kind is None else (kind,)
    reasons = {
        str(option): excluded_reason(option, shape, group_size, stores_scores) or _reason_of_kinds(option, kinds)
        for option in all_options()
    }
    return {text: reason for text, reason in reasons.items() if reason is not None}


def _reason_of_kinds(option: Option, kinds: tuple[str, ...]) -> str | None:
    if "moe" not in kinds or option.mlp == "tp_sp":
        return None
    return "layers with experts keep Megatron's own MLP (write e.g. ulysses/tp_sp)"


def excluded_reason(option: Option, shape: ModelShape, group_size: int, stores_scores: bool = True) -> str | None:
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
    return nothing_to_recompute(option, group_size, groups, stores_scores)


def nothing_to_recompute(option: Option, group_size: int, num_groups: int, stores_scores: bool = True) -> str | None:
    """Why recomputing the attention core would drop nothing, as a clause; None where it drops something.

    Megatron's core drops scores, if it stores them. The core of a ring keeps q, k, v and the log-sum-exp; its output
    is the input of the output projection, which keeps it too. Exchanges behind the core make the difference elsewhere:
    the output is kept before and after.
    """
    if option.recompute != "selective":
        return None
    if option.attention == "tp_sp" and not stores_scores:
        return "a fused attention core keeps no scores, so recomputing it would free next to nothing"
    is_ring = option.attention == "usp" and group_size > 1 and ulysses_degree(group_size, num_groups) == 1
    if option.attention != "ring" and not is_ring:
        return None
    return (
        "its core keeps only q, k, v, the log-sum-exp and what the output projection keeps anyway, so recomputing the "
        "core would free next to nothing for a whole round of the ring"
    )
