"""Who takes part: our plans by length, our strategies and Megatron's layers as static choices, Megatron's own ways."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from paradyse_megatron.costmodel.average import AverageLayer
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.plan import HEADS
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.survey import BreakEven, break_evens
from paradyse_megatron.simulation.choice import Choice, Dynamic, Uniform
from paradyse_megatron.simulation.context_parallel import (
    LAYER_OPTIONS,
    ContextParallel,
    context_parallel_choices,
    tensor_degrees,
    tensor_parallel_costs,
)
from paradyse_megatron.simulation.hybrid_context_parallel import HybridContextParallel, Schedule, hybrid_choices
from paradyse_megatron.simulation.network import Network, static_bytes

Candidate = Choice | HybridContextParallel
Wanted = Callable[[str], bool]


def planned_choices(cost_model: CostModel, num_gpus: int, budget_bytes: int | None) -> Iterator[Choice]:
    """The dynamic plan and every static choice on the group of a cost model.

    Megatron's own layers, `tp_sp` with any recompute, have the whole loss head, as Megatron has.
    """
    ranks = cost_model.group_size
    static = static_bytes(cost_model.shape, ranks, num_gpus)
    budget = sys.maxsize if budget_bytes is None else budget_bytes
    layer, kinds = AverageLayer(cost_model), cost_model.shape.layer_kinds
    planner = Planner(cost_model, len(kinds), budget, layer_kinds=kinds, static_bytes=static)
    yield Dynamic(f"dynamic P={ranks}", ranks, planner)
    for option in layer.options:
        is_megatrons = option.partition("+")[0] == "tp_sp"
        kind, heads = ("megatron", HEADS[:1]) if is_megatrons else ("static", cost_model.heads)
        yield Uniform(f"{option} P={ranks}", kind, layer, option, static, budget_bytes, heads)


def estimated_choices(
    shape: ModelShape, network: Network, budget_bytes: int | None, schedule: Schedule | None, limit: int
) -> Iterator[Candidate]:
    """All of `planned_choices` for every group size within a node, and Megatron's context parallelism.

    Everything is estimated alike for the machine of `network`. Without a `schedule` the hybrid ones are left out.
    """
    for ranks in tensor_degrees(shape, network):
        costs = estimate(shape, network.cluster, ranks)
        yield from planned_choices(costs, network.num_gpus, budget_bytes)
    for choice in context_parallel_choices(shape, network, budget_bytes):
        if choice.context_ranks > 1:  # C = 1 is `tp_sp`
            yield choice
    for ranks in tensor_degrees(shape, network) if schedule is not None else []:
        for option in LAYER_OPTIONS:
            base = ContextParallel(
                tensor_parallel_costs(shape, network, ranks), network, 1, option=option, budget_bytes=budget_bytes
            )
            assert schedule is not None
            yield from hybrid_choices(base, schedule, limit)


def estimated_break_evens(shape: ModelShape, network: Network, longest: int) -> dict[int, list[BreakEven]]:
    """For every group size within a node, the lengths where the fastest option changes, memory aside."""
    return {
        ranks: break_evens(estimate(shape, network.cluster, ranks), longest) for ranks in tensor_degrees(shape, network)
    }
