"""A planner for each pipeline stage: its layers, its static bytes, its micro-batches in flight."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from megatron.core import parallel_state

from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.cost import CostSource
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.stages import PipelinePlanner, in_flight, layers_of_stage


def costs_by_kind(cost_model: CostModel) -> dict[str, CostModel]:
    """The cost model of each kind of layer."""
    return {kind: cost_model.of_kind(kind) for kind in cost_model.kinds}


def plan_pipeline(
    args: argparse.Namespace,
    shape: ModelShape,
    costs: Mapping[str, CostSource],
    budget_bytes: int,
    options: Sequence[str],
    chunked_head: bool,
) -> PipelinePlanner:
    """The planner of all stages, the same on every rank.

    Args:
        costs: by kind of layer.
        budget_bytes: of a rank, on every stage.
        options: that may be used, each by the kinds that have costs of it.
        chunked_head: see `Planner`.

    Raises:
        ValueError: options that no layer can follow, or layers that cannot be dealt evenly.
    """
    num_stages, num_chunks = args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size or 1
    stages = []
    for stage in range(num_stages):
        layers = layers_of_stage(stage, num_stages, num_chunks, shape.num_layers)
        kinds, is_last = [shape.layer_kinds[layer] for layer in layers], stage == num_stages - 1
        planner = Planner(
            {kind: costs[kind] for kind in kinds},
            len(layers),
            budget_bytes,
            options=_of_kinds(kinds, costs, options),
            layer_kinds=kinds,
            hysteresis=args.paradyse_hysteresis,
            microbatches_in_flight=in_flight(stage, num_stages, num_chunks),
            with_head=is_last,
            static_bytes=shape.static_bytes(args.tensor_model_parallel_size, kinds, embedding=stage == 0, head=is_last),
            chunked_head=chunked_head,
        )
        stages.append(planner)
    return PipelinePlanner(stages, num_chunks, own_stage)


def own_stage() -> int:
    """This rank's; before there are groups, the last one, which has the loss."""
    if not parallel_state.model_parallel_is_initialized():
        return -1
    return parallel_state.get_pipeline_model_parallel_rank()


def _of_kinds(kinds: Sequence[str], costs: Mapping[str, CostSource], options: Sequence[str]) -> list[str]:
    """Those that layers of these kinds can follow; of what no layer can the planner says so."""
    here = {option for kind in set(kinds) for option in costs[kind].options}
    anywhere = {option for source in costs.values() for option in source.options}
    return [option for option in options if option in here or option not in anywhere] or list(options)
