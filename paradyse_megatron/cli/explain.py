"""Explain the plan of one length: every option's time and memory side by side, and why the choice fell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.cli.costs import Asked, add_cost_arguments
from paradyse_megatron.costmodel.curve import LONGEST
from paradyse_megatron.planner.explain import Terms, explain

EXAMPLE = "paradyse explain --cost-model runs/demo/cost_model.json --seq-length 4096 --memory-budget 200MiB"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    add_cost_arguments(parser)
    parser.add_argument("--seq-length", required=True, type=int, metavar="N", help="tokens of the sequence")
    parser.add_argument("--all", action="store_true", help="show also options that another one beats in every way")


def run(asked: argparse.Namespace) -> Answer:
    """Terms and reasons; the answer is no when no plan fits."""
    costs = Asked.of(asked)
    found = explain(costs.make, costs.layer, asked.seq_length, costs.budget_bytes, LONGEST)
    title = f"{found.seq_length:,} tokens on {costs.cost_model.group_size} ranks, {costs.num_layers} layers"
    columns = ("option", "layer ms", "saved MiB", "work MiB", "buffer", "all ms", "peak MiB", "fits", "layers")
    shown = found.terms if asked.all else worth_showing(found.terms)
    left_out = len(found.terms) - len(shown)
    notes = [f"plan: {found.plan}", *found.sentences, f"costs: {costs.cost_model.source}"]
    if left_out:
        notes.append(f"{left_out} more options are no better in time, saved bytes and workspace than one above; --all.")
    content = {"cost_model": costs.cost_model.source, **found.as_dict()}
    return Answer(content, title, columns, [_row(terms) for terms in shown], notes, bool(found.plan.fits))


def worth_showing(terms: Sequence[Terms]) -> list[Terms]:
    """Without options that an earlier one beats in every way; `tp_sp`, and what was chosen, always."""
    shown: list[Terms] = []
    for each in terms:
        if each.num_layers or each.option == "tp_sp" or not any(each.is_no_better_than(other) for other in shown):
            shown.append(each)
    return shown


def _row(terms: Terms) -> tuple[str, ...]:
    return (
        terms.option,
        _short(terms.milliseconds),
        _short(terms.saved_bytes / 2**20),
        _short(terms.workspace_bytes / 2**20),
        _short(terms.buffer_bytes / 2**20),
        _short(terms.everywhere.predicted_ms or 0),
        _short((terms.everywhere.predicted_bytes or 0) / 2**20),
        "yes" if terms.everywhere.fits else "no",
        str(terms.num_layers or ""),
    )


def _short(number: float) -> str:
    """Three digits at least, and no more than a table has room for."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
