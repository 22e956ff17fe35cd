"""Show the plan that a cost model gives for a sequence length, or for every length up to it."""

from __future__ import annotations

import argparse
import sys

from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.integration.sizes import parse_size
from paradyse_megatron.planner.planner import Planner

EXAMPLE = "paradyse plan --cost-model runs/demo/cost_model.json --seq-length 4096 --memory-budget 200MiB"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--cost-model", required=True, metavar="FILE", help="a cost model file")
    parser.add_argument("--seq-length", required=True, type=int, metavar="N", help="tokens of the sequence")
    parser.add_argument("--memory-budget", metavar="SIZE", help="memory of a rank, such as 16GiB (default: no limit)")


def run(asked: argparse.Namespace) -> Answer:
    """Plans for N, N/2, N/4, ...; the answer is no when N itself does not fit."""
    cost_model = CostModel.load(asked.cost_model)
    shape = cost_model.shape
    budget = parse_size(asked.memory_budget, "--memory-budget") if asked.memory_budget else sys.maxsize
    static_bytes = shape.static_bytes(cost_model.group_size)
    planner = Planner(cost_model, shape.num_layers, budget, static_bytes=static_bytes)
    plans = {length: planner.plan(length) for length in _halvings(asked.seq_length)}
    content = [
        {"seq_length": n, "plan": str(p), "predicted_ms": p.predicted_ms, "predicted_bytes": p.predicted_bytes,
         "fits": p.fits} for n, p in plans.items()
    ]  # fmt: skip
    rows = [(f"{n:,}", str(p), f"{p.predicted_ms:,.1f}", f"{(p.predicted_bytes or 0) / 2**20:,.0f}", _yes(p.fits))
            for n, p in plans.items()]  # fmt: skip
    title = f"Plans of {shape.num_layers} layers on {cost_model.group_size} ranks"
    notes = [f"costs: {cost_model.source}"]
    return Answer(content, title, ("tokens", "plan", "predicted ms", "predicted MiB", "fits"), rows, notes,
                  bool(plans[asked.seq_length].fits))  # fmt: skip


def _halvings(length: int) -> list[int]:
    lengths = [length]
    while lengths[-1] > 64:
        lengths.append(lengths[-1] // 2)
    return lengths


def _yes(fits: bool | None) -> str:
    return "yes" if fits else "no"
