"""List which options a model can follow on a group of ranks, and why not the others."""

from __future__ import annotations

import argparse

from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.costmodel.model_sources import read_shape
from paradyse_megatron.costmodel.support import excluded_options
from paradyse_megatron.planner.option import all_options

EXAMPLE = "paradyse strategies --model configs/models/llama-3-8b.yaml --group-size 8"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--model", required=True, metavar="FILE", help="as for profile")
    parser.add_argument("--group-size", required=True, type=int, metavar="P", help="tensor-parallel ranks")


def run(asked: argparse.Namespace) -> Answer:
    """Every option with the reason why no layer can follow it, if so; the answer is no when none is left."""
    shape = read_shape(asked.model)
    first, *others = (excluded_options(shape, asked.group_size, kind=kind) for kind in shape.kinds)
    excluded = {option: reason for option, reason in first.items() if all(option in other for other in others)}
    reasons = {str(option): excluded.get(str(option)) for option in all_options()}
    content = [{"option": option, "usable": reason is None, "reason": reason} for option, reason in reasons.items()]
    rows = [(option, "yes" if reason is None else "no", reason or "") for option, reason in reasons.items()]
    title = f"Options for {asked.model} on {asked.group_size} ranks"
    return Answer(content, title, ("option", "usable", "reason"), rows, yes=None in reasons.values())
