"""What our layers cost where they leave Megatron's path as it is: the plan `tp_sp` beside stock layers, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from paradyse_megatron.bench.ranks import run_on_ranks
from paradyse_megatron.costmodel.shape import ModelShape

RANK = "paradyse_megatron.bench.overhead:take_turns"
NUM_TOKENS = 256
"""Short, so that what a layer costs beside its arithmetic counts."""
RUN_SECONDS = 300


def tp_sp_over_stock(shape: ModelShape, num_ranks: int, num_rounds: int) -> float:
    """Median over rounds of the ratio of two micro-batches' times, one after the other, on loopback."""
    arguments = {"shape": shape.as_dict(), "num_rounds": num_rounds}
    outcome = run_on_ranks(RANK, num_ranks, arguments, timeout_seconds=RUN_SECONDS)
    if outcome.failure:
        raise RuntimeError(f"the comparison with stock layers did not end: {outcome.failure}")
    times: dict[str, list[float]] = outcome.results[0]
    return statistics.median(ours / theirs for ours, theirs in zip(times["tp_sp"], times["stock"], strict=True))


def take_turns(shape: Mapping[str, Any], num_rounds: int) -> dict[str, list[float]]:
    """Worker: milliseconds of forward and backward on the slowest rank, whoever was second being first next."""
    from paradyse_megatron.bench.model import gpt, step_under
    from paradyse_megatron.planner.plan import Plan
    from paradyse_megatron.profiling import stopwatch

    of_shape = ModelShape(**shape)
    plan = Plan.parse("tp_sp", of_shape.num_layers)
    ways: dict[str, tuple[Any, Plan | None]] = {
        "stock": (gpt(of_shape, NUM_TOKENS, stock=True), None),
        "tp_sp": (gpt(of_shape, NUM_TOKENS), plan),
    }
    group = ways["tp_sp"][0].decoder.layers[0].self_attention.tp_group
    tokens = [token % of_shape.vocab_size for token in range(NUM_TOKENS + 1)]
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(num_rounds + 1):  # the first one counts for nothing
        for name in sorted(ways, reverse=turn % 2 == 1):
            model, follows = ways[name]
            took = stopwatch.milliseconds(partial(step_under, model, tokens, follows), group)
            if turn:
                times[name].append(took)
    return times
