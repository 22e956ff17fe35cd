"""A cost model without hardware: layers traced, times worked out on a described machine."""

from __future__ import annotations

from collections.abc import Callable

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.first_principles import estimate, make_setting
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.provenance import NOT_MEASURED, Provenance
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.option import Option
from paradyse_megatron.profiling.check import agreement
from paradyse_megatron.profiling.trace import trace_parts, traced_lengths

UNFUSED = "Layers are Megatron's local ones: attention of tp_sp stores its scores, and norms are several operations."
FUSED = "Attention of tp_sp is a flash kernel, and a norm is one kernel."
BALANCED = "Every expert gets the same number of tokens."


def traced_cost_model(
    shape: ModelShape,
    cluster: Cluster,
    machine: str,
    group_size: int,
    micro_batch_size: int = 1,
    progress: Callable[[str], None] = lambda part: None,
) -> CostModel:
    """Costs of every option that the model can run; in a process without process groups, Megatron importable.

    Args:
        machine: name of what `cluster` describes.
        progress: told of each part before it is traced.

    Raises:
        ValueError: sizes or options that cannot be.
    """
    if shape.num_experts and shape.add_bias and group_size > 1:
        raise ValueError(
            "Megatron has no biases in experts whose matrices are cut for several ranks, but the model has add_bias, "
            f"{shape.num_experts} experts and {group_size} ranks; set add_bias to false (--disable-bias-linear)."
        )
    setting = make_setting(shape, cluster, group_size, micro_batch_size)
    assumptions = [NOT_MEASURED, UNFUSED if setting.unfused else FUSED, *([BALANCED] if shape.num_experts else [])]
    parts = trace_parts(setting, progress=progress)
    about = Provenance.now(machine, traced_tokens=tuple(traced_lengths(setting)), assumptions=tuple(assumptions))
    return estimate(shape, cluster, group_size, micro_batch_size=micro_batch_size, parts=parts, provenance=about)


def disagreements(model: CostModel, cluster: Cluster) -> dict[str, list[str]]:
    """Where the trace of dense layers is further from the closed forms than it may be: clauses by option."""
    setting = make_setting(model.shape, cluster, model.group_size, model.micro_batch_size)
    options = model.options_of("dense") if "dense" in model.kinds else ()
    faults = {option: agreement(model.parts, Option.parse(option), setting).faults() for option in options}
    return {option: found for option, found in faults.items() if found}
