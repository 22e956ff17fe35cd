"""Show the plans that a cost model gives by length, where the fastest option changes, and what length fits."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict

from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.cli.costs import Asked, add_cost_arguments
from paradyse_megatron.costmodel.curve import LONGEST
from paradyse_megatron.layouts.padding import padding_multiple
from paradyse_megatron.planner.option import USUAL_MLP, Option
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.planner.survey import BreakEven, break_evens, largest_lengths

EXAMPLE = "paradyse plan --cost-model runs/demo/cost_model.json --seq-length 4096 --memory-budget 200MiB"
TABLE_END = 131_072
"""Tokens up to which the table goes when no length is asked for and memory sets no end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    add_cost_arguments(parser)
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument("--seq-length", type=int, metavar="N", help="plans for N, N/2, N/4, ... tokens")
    lengths.add_argument(
        "--lengths", metavar="A,B,...", help="plans for these lengths (default: powers of two up to the longest)"
    )


def run(asked: argparse.Namespace) -> Answer:
    """Plans by length; the answer is no when a length that was asked for (N of --seq-length) does not fit."""
    costs = Asked.of(asked)
    planner = costs.make()
    longest = planner.largest_length(LONGEST)
    lengths = _lengths(asked, costs, longest)
    plans = {length: planner.plan(length) for length in lengths}
    must_fit = [asked.seq_length] if asked.seq_length else lengths
    changes = break_evens(costs.layer, max([*lengths, longest if longest < LONGEST else 0]))
    static = {option: costs.layer.followed(option) for option in costs.layer.options}
    largest = {**largest_lengths(costs.make, static, LONGEST), "dynamic": longest}
    content = {
        "cost_model": costs.cost_model.source,
        "group_size": costs.cost_model.group_size,
        "num_layers": costs.num_layers,
        "memory_budget_bytes": costs.budget_bytes,
        "plans": [_row(length, plan) for length, plan in plans.items()],
        "break_even_lengths": [asdict(change) for change in changes],
        "largest_lengths": largest,
        "largest_lengths_limit": LONGEST,
    }
    rows = [
        (f"{n:,}", str(p), f"{p.predicted_ms:,.1f}", f"{(p.predicted_bytes or 0) / 2**20:,.0f}", _yes(p.fits))
        for n, p in plans.items()
    ]
    notes = [
        f"fastest option of a layer, memory aside: {_fastest(changes)}",
        f"longest sequence that fits: {_largest(largest)}",
        f"costs: {costs.cost_model.source}",
    ]
    title = f"Plans of {costs.num_layers} layers on {costs.cost_model.group_size} ranks"
    columns = ("tokens", "plan", "predicted ms", "predicted MiB", "fits")
    return Answer(content, title, columns, rows, notes, all(plans[length].fits for length in must_fit))


def _lengths(asked: argparse.Namespace, costs: Asked, longest: int) -> list[int]:
    if asked.seq_length is not None:
        return _halvings(asked.seq_length)
    if asked.lengths is not None:
        return parse_lengths(asked.lengths)
    end = max(min(longest, TABLE_END), 1) if longest == LONGEST else max(longest, 1)
    doublings = [padding_multiple(costs.cost_model.group_size)]
    while doublings[-1] * 2 < end:
        doublings.append(doublings[-1] * 2)
    return sorted({*(n for n in doublings if 64 <= n < end), end})


def parse_lengths(text: str) -> list[int]:
    """'128,4096' as numbers. Raises ValueError."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"--lengths is '{text}'; write whole numbers with commas, such as 128,4096,65536.") from error


def _halvings(length: int) -> list[int]:
    lengths = [length]
    while lengths[-1] > 64:
        lengths.append(lengths[-1] // 2)
    return lengths


def _row(length: int, plan: Plan) -> dict[str, object]:
    return {
        "seq_length": length,
        "plan": str(plan),
        "predicted_ms": plan.predicted_ms,
        "predicted_bytes": plan.predicted_bytes,
        "fits": plan.fits,
    }


def _fastest(changes: list[BreakEven]) -> str:
    if not changes:
        return "the same at every length"
    later = "".join(f", {change.after} from {change.seq_length:,} tokens" for change in changes)
    return changes[0].before + later


def _largest(lengths: Mapping[str, int]) -> str:
    """Of the dynamic plan, and of each attention strategy with its usual MLP; --json has all."""
    if set(lengths.values()) == {LONGEST}:
        return f"{LONGEST:,} tokens or more, whatever the option, as no memory budget is given"
    usual = [text for text in lengths if text != "dynamic" and _is_usual(Option.parse(text))]
    return ", ".join(
        f"{name} {lengths[name]:,}{' or more' if lengths[name] == LONGEST else ''}" for name in ["dynamic", *usual]
    )


def _is_usual(option: Option) -> bool:
    return option.mlp == USUAL_MLP[option.attention]


def _yes(fits: bool | None) -> str:
    return "yes" if fits else "no"
