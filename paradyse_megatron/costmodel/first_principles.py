"""A cost model before anything is measured: the work of every option on a described machine.

Good enough that plans differ by length and that nothing is measured before the first step; measured costs replace it
piece by piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paradyse_megatron.costmodel import closed_forms, head_bytes
from paradyse_megatron.costmodel.analytic import direction_terms, milliseconds, sending_ms
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.compose import compose
from paradyse_megatron.costmodel.costs import HeadCosts, OptionCosts
from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.polynomial import NOTHING, TOKENS
from paradyse_megatron.costmodel.provenance import Provenance
from paradyse_megatron.costmodel.setting import Setting
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.support import excluded_options
from paradyse_megatron.costmodel.work import PartWork, Work
from paradyse_megatron.layouts.padding import positive_whole
from paradyse_megatron.planner.option import Option, all_options


def estimate(
    shape: ModelShape,
    cluster: Cluster,
    group_size: int,
    options: Sequence[str] | None = None,
    micro_batch_size: int = 1,
    *,
    parts: Mapping[str, PartWork] | None = None,
    provenance: Provenance | None = None,
) -> CostModel:
    """Costs of every option in `options` that the shape can run; None means all that this version can run.

    Args:
        parts: traced work by part (`profiling.trace`); without it the closed forms serve, which know no experts.
        provenance: what the file says about where its numbers come from.

    Raises:
        ValueError: an option that cannot be parsed, none that the shape can run, or experts without a trace.
    """
    setting = make_setting(shape, cluster, group_size, micro_batch_size)
    asked = all_options() if options is None else tuple(Option.parse(text) for text in options)
    costs = {kind: _costs(kind, asked, setting, cluster, parts) for kind in shape.kinds}
    heads = [_head_costs(setting, cluster, chunked) for chunked in (False, True)]
    source = "closed forms" if parts is None else "a trace of the layers"
    return CostModel(
        shape=shape,
        group_size=setting.group_size,
        micro_batch_size=setting.batch,
        source=f"{source}, on a described machine",
        costs=costs,
        head=heads[0],
        chunked_head=heads[1],
        parts=dict(parts or {}),
        provenance=provenance or Provenance.now("a described machine"),
    )


def redescribed(costs: CostModel, cluster: Cluster) -> CostModel:
    """The same work on another machine; memory and the layers' implementation stay what they are."""
    fresh = estimate(
        costs.shape, cluster, costs.group_size, None, costs.micro_batch_size, parts=dict(costs.parts) or None
    )
    kinds = {
        kind: {option: replace(of, milliseconds=fresh.costs[kind][option].milliseconds) for option, of in known.items()}
        for kind, known in costs.costs.items()
    }
    head, chunked = replace(costs.head, milliseconds=fresh.head.milliseconds), costs.chunked_head
    if chunked is not None and fresh.chunked_head is not None:
        chunked = replace(chunked, milliseconds=fresh.chunked_head.milliseconds)
    return replace(costs, costs=kinds, head=head, chunked_head=chunked)


def make_setting(shape: ModelShape, cluster: Cluster, group_size: int, micro_batch_size: int = 1) -> Setting:
    """How a model is cut on a machine. Raises ValueError for sizes that are no whole numbers of at least 1."""
    group_size = positive_whole(group_size, "The group size", "rank")
    batch = positive_whole(micro_batch_size, "The micro-batch size", "sequence")
    per_node = cluster.ranks_per_node
    return Setting(
        shape, group_size, batch, cluster.attention_materialised, per_node if group_size > per_node else None
    )


def usable_options(setting: Setting, kind: str, asked: Sequence[Option]) -> list[Option]:
    """Of `asked`, those that layers of `kind` can run. Raises ValueError with the reasons when there are none."""
    excluded = excluded_options(setting.shape, setting.group_size, setting.unfused, kind)
    usable = [option for option in asked if str(option) not in excluded]
    if not usable:
        reasons = "; ".join(dict.fromkeys(excluded[str(option)] for option in asked)) or "none was asked for"
        raise ValueError(f"No option can run this model on {setting.group_size} ranks: {reasons}.")
    return usable


def _costs(
    kind: str,
    asked: Sequence[Option],
    setting: Setting,
    cluster: Cluster,
    parts: Mapping[str, PartWork] | None,
) -> dict[str, OptionCosts]:
    if parts is None and kind == "moe":
        raise ValueError(
            "There are no closed forms for layers with experts: trace the model with "
            "'paradyse profile --trace-only --model F --group-size P --cluster F --out FILE'."
        )
    costs = {}
    for option in usable_options(setting, kind, asked):
        work = layer_work(option, kind, setting, parts)
        time = milliseconds(work, cluster, setting.shape.dtype)
        costs[str(option)] = OptionCosts(time, work.saved_bytes, work.workspace_bytes, work.buffer_bytes)
    return costs


def layer_work(option: Option, kind: str, setting: Setting, parts: Mapping[str, PartWork] | None) -> Work:
    """Traced where there is a trace, else by closed form."""
    if parts is None:
        return closed_forms.layer_work(option, setting)
    return compose(parts, option, kind, setting)


def _head_costs(setting: Setting, cluster: Cluster, chunked: bool) -> HeadCosts:
    """A chunk has three collectives of its own."""
    work, dtype = closed_forms.head_work(setting, chunked), setting.shape.dtype
    sent = [(each, each.backward_bytes, each.backward_calls) for each in work.transfers]
    terms = direction_terms(work.backward, sent, cluster, dtype)
    if chunked and setting.group_size > 1:
        of_a_chunk = sending_ms("gather", setting.group_size, NOTHING, 3, cluster).constant
        terms = tuple(term + TOKENS * (setting.batch * of_a_chunk / head_bytes.chunk_tokens(setting)) for term in terms)
    return HeadCosts(Curve(terms), work.saved_bytes, work.buffer_bytes)
