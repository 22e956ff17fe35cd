"""From Megatron's arguments to a controller on this rank's decoder."""

from __future__ import annotations

import argparse
import functools
import os
from pathlib import Path
from typing import Any

import torch

from paradyse_megatron.compat import has_output_processor
from paradyse_megatron.costmodel import head_bytes
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.pairs import PairCosts
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.integration.arguments import chosen_options
from paradyse_megatron.integration.cost_models import find_cost_model, model_shape
from paradyse_megatron.integration.hybrid import model_class, positions
from paradyse_megatron.integration.sizes import parse_size
from paradyse_megatron.layers.families import check_plan
from paradyse_megatron.layers.support import check_supported, unsupported_reason
from paradyse_megatron.planner.cost import CostSource
from paradyse_megatron.planner.option import Option, all_options
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.runtime.decision import Decider, FixedPlan, PlannedByLength
from paradyse_megatron.runtime.feedback import CorrectedCosts, PlannedWithFeedback

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
    stages, is_hybrid = args.pipeline_model_parallel_size, positions(args) is not None
    static_bytes = shape.static_bytes(ranks * stages)
    make_planner = functools.partial(
        _planner,
        PairCosts(cost_model) if is_hybrid else cost_model,
        num_layers=-(-shape.num_layers // stages),
        options=_usable_options(args, config, cost_model),
        hysteresis=args.paradyse_hysteresis,
        microbatches_in_flight=_microbatches_in_flight(args),
        static_bytes=static_bytes,
        chunked_head=has_output_processor(model_class(args)),
    )
    planner = make_planner({}, memory_budget_bytes(args))
    chunks = args.virtual_pipeline_model_parallel_size or 1
    positions_a_layer = 2 if is_hybrid else 1
    planned = PlannedByLength(planner, cost_model, stages, args.seq_length, static_bytes, chunks, positions_a_layer)
    return PlannedWithFeedback(planned, make_planner) if args.paradyse_feedback else planned


def _planner(costs: CostSource, factors: dict[str, float], memory_budget_bytes: int, **arguments: Any) -> Planner:
    """With times multiplied by `factors`, by option."""
    source = CorrectedCosts(costs, factors) if factors else costs
    return Planner(source, memory_budget_bytes=memory_budget_bytes, **arguments)


def _refuse_unknown_experts(args: argparse.Namespace, shape: ModelShape) -> None:
    """Costs of experts are for every layer having them, cut among the tensor-parallel ranks."""
    num_ranks = getattr(args, "expert_model_parallel_size", 1)
    if shape.num_experts and num_ranks > 1:
        raise ValueError(
            f"--expert-model-parallel-size {num_ranks} and --paradyse-plan auto do not work together: there are no "
            "costs of experts on other ranks. Set it to 1, or give a fixed plan such as ulysses/tp_sp."
        )
    if len(shape.kinds) > 1:
        raise ValueError(
            f"--moe-layer-freq {args.moe_layer_freq} and --paradyse-plan auto do not work together: plans have one "
            "kind of layer. Set it to 1, or give a fixed plan such as ulysses/tp_sp."
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


def _microbatches_in_flight(args: argparse.Namespace) -> int:
    """Whose activations the first pipeline stage holds at once, at most.

    One for each stage; interleaved with v virtual stages a share of (p - 1) / (p v) more (arXiv 2104.04473, 2.2).
    """
    stages, virtual = args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size
    return stages if not virtual else stages + -(-(stages - 1) // virtual)


def _usable_options(args: argparse.Namespace, config: Any, cost_model: CostModel) -> list[str]:
    asked = chosen_options(args)
    if asked is not None:
        check_supported([Option.parse(text) for text in asked], config)
        return asked
    return [
        str(option)
        for option in all_options()
        if str(option) in cost_model.options and unsupported_reason(option, config) is None
    ]
