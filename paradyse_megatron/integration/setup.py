"""From Megatron's arguments to a controller on this rank's decoder."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from paradyse_megatron.compat import has_output_processor
from paradyse_megatron.costmodel import head_bytes
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.pairs import pair_costs
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.integration.arguments import chosen_options
from paradyse_megatron.integration.cost_models import find_cost_model, model_shape
from paradyse_megatron.integration.hybrid import model_class, positions
from paradyse_megatron.integration.pipelines import costs_by_kind, plan_pipeline
from paradyse_megatron.integration.sizes import parse_size
from paradyse_megatron.layers.experts import without_experts
from paradyse_megatron.layers.families import check_plan
from paradyse_megatron.layers.support import check_supported, unsupported_reason
from paradyse_megatron.planner.option import Option, all_options
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.planner.stages import PipelinePlanner
from paradyse_megatron.runtime.decision import Decider, FixedPlan, PlannedByLength
from paradyse_megatron.runtime.feedback import PlannedWithFeedback, corrected

USABLE_SHARE = 0.9
"""Of a device's memory, with --paradyse-memory-budget auto; the rest is for the runtime and fragmentation."""


def make_decider(args: argparse.Namespace, config: Any) -> Decider:
    """The decider that --paradyse-plan and its companions ask for. Raises ValueError before anything is sent."""
    ranks = args.tensor_model_parallel_size
    if not args.dynamic_parallel:
        return FixedPlan(Plan.parse("tp_sp", args.num_layers), ranks)
    if args.paradyse_plan != "auto":
        plan = read_plan(args.paradyse_plan, args.num_layers)
        check_plan(plan.layer_options, config, positions(args))
        return FixedPlan(plan, ranks, _longest_whole_head(args, plan))
    shape = model_shape(args)
    _refuse_unknown_experts(args, shape)
    cost_model = find_cost_model(args, shape)
    is_hybrid = positions(args) is not None
    make_planner = functools.partial(
        _planner,
        args,
        shape,
        costs_by_kind(pair_costs(cost_model) if is_hybrid else cost_model),
        options=_usable_options(args, config, cost_model),
        chunked_head=has_output_processor(model_class(args)),
    )
    planner = make_planner({}, memory_budget_bytes(args))
    planned = PlannedByLength(planner, cost_model, args.seq_length, positions_a_layer=2 if is_hybrid else 1)
    return PlannedWithFeedback(planned, make_planner) if args.paradyse_feedback else planned


def _planner(
    args: argparse.Namespace,
    shape: ModelShape,
    costs: Mapping[str, CostModel],
    factors: dict[str, float],
    memory_budget_bytes: int,
    **arguments: Any,
) -> PipelinePlanner:
    """With times multiplied by `factors`, by option."""
    by_kind = {kind: corrected(each, factors) for kind, each in costs.items()} if factors else costs
    return plan_pipeline(args, shape, by_kind, memory_budget_bytes, **arguments)


def _refuse_unknown_experts(args: argparse.Namespace, shape: ModelShape) -> None:
    """Costs of experts are for experts cut among the tensor-parallel ranks."""
    num_ranks = getattr(args, "expert_model_parallel_size", 1)
    if shape.num_experts and num_ranks > 1:
        raise ValueError(
            f"--expert-model-parallel-size {num_ranks} and --paradyse-plan auto do not work together: there are no "
            "costs of experts on other ranks. Set it to 1, or give a fixed plan such as ulysses/tp_sp."
        )


def read_plan(text: str, num_layers: int) -> Plan:
    """--paradyse-plan: a file if there is one of that name, else the text of a plan. Raises ValueError."""
    try:
        return Plan.from_file(text, num_layers) if Path(text).is_file() else Plan.parse(text, num_layers)
    except ValueError as error:
        raise ValueError(f"--paradyse-plan: {error}") from error


def _longest_whole_head(args: argparse.Namespace, plan: Plan) -> int | None:
    """See `FixedPlan`. Raises ValueError where this Megatron cannot do what the plan asks for."""
    if has_output_processor(model_class(args)):
        num_words = args.padded_vocab_size or args.vocab_size
        return head_bytes.longest_whole(-(-num_words // args.tensor_model_parallel_size), args.micro_batch_size)
    if plan.head != "whole":
        raise ValueError(
            f"--paradyse-plan '{plan}' asks for a {plan.head} loss head, which needs megatron-core 0.18 or later (0.19 "
            "with --hybrid-layer-pattern). Install one, or leave 'head' out of the plan."
        )
    return None


def memory_budget_bytes(args: argparse.Namespace) -> int:
    """--paradyse-memory-budget, or a fixed share of what the device has (never of what happens to be free now)."""
    if args.paradyse_memory_budget != "auto":
        return parse_size(args.paradyse_memory_budget, "--paradyse-memory-budget")
    from paradyse_megatron import cpu

    total_bytes = torch.cuda.mem_get_info()[1]
    sharers = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if cpu.is_enabled() else 1
    return int(USABLE_SHARE * total_bytes / sharers)


def _usable_options(args: argparse.Namespace, config: Any, cost_model: CostModel) -> list[str]:
    """Those that layers of some kind can follow."""
    of_kind = {"dense": without_experts(config), "moe": config}
    configs = [of_kind[kind] for kind in cost_model.kinds]
    asked = chosen_options(args)
    if asked is not None:
        for option in map(Option.parse, asked):
            if all(unsupported_reason(option, each) for each in configs):
                check_supported([option], configs[0])
        return asked
    known = {option for kind in cost_model.kinds for option in cost_model.options_of(kind)}
    return [
        str(option)
        for option in all_options()
        if str(option) in known and None in [unsupported_reason(option, each) for each in configs]
    ]
