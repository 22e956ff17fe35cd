"""The demo trained by plans by length and by Megatron's own layers, from one seed: the same loss curve or not."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

from paradyse_megatron.cli.answer import Answer

EXAMPLE = "paradyse bench convergence --out convergence.json --picture convergence.svg"
SHOWN_EVERY = 10
"""Iterations in the table: a tenth of them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this benchmark."""
    parser.add_argument("--iterations", type=int, default=300, metavar="N", help="of each run (default: 300)")
    parser.add_argument("--seq-length", type=int, default=1024, metavar="N", help="documents are cut there")
    parser.add_argument("--num-ranks", type=int, default=2, metavar="P", help="CPU ranks (default: 2)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw both curves, as PNG or SVG")


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    warnings.simplefilter("ignore")
    if asked.iterations < 1 or asked.num_ranks < 2 or asked.seq_length < 2:
        raise ValueError(
            f"--iterations {asked.iterations} must be at least 1, --num-ranks {asked.num_ranks} and --seq-length "
            f"{asked.seq_length} 2."
        )
    if asked.picture is not None and asked.picture.suffix not in (".png", ".svg"):
        raise ValueError(f"--picture {asked.picture} must end with .png or .svg.")
    from paradyse_megatron.bench.convergence import bench, draw

    content = bench(asked.iterations, asked.seq_length, asked.num_ranks)
    if asked.picture is not None:
        draw(content, asked.picture)
    return content


def answer(content: dict[str, Any]) -> Answer:
    """Some iterations; the answer is no where the curves differ by more than the bar anywhere."""
    from paradyse_megatron.bench.convergence import DYNAMIC, MOST_DIFFERENT, STOCK

    stock, dynamic = content["losses"][STOCK], content["losses"][DYNAMIC]
    step = max(1, len(stock) // SHOWN_EVERY)
    shown = [*range(0, len(stock) - 1, step), len(stock) - 1]
    rows = [
        (str(i + 1), f"{stock[i]:.6f}", f"{dynamic[i]:.6f}", f"{abs(dynamic[i] / stock[i] - 1):.1e}") for i in shown
    ]
    largest = content["largest_relative_difference"]
    shares = ", ".join(f"{option} {share:.0%}" for option, share in content["option_shares"].items())
    notes = [
        "a loss is not finite"
        if largest is None
        else f"largest relative difference: {largest:.1e}, to be at most {MOST_DIFFERENT:g}",
        f"{content['num_real_tokens']:,} tokens, {content['num_plans']} plans; shares of layers: {shares}",
    ]
    title = f"Loss of {len(stock)} iterations of the demo on {content['num_ranks']} ranks, fp32, one seed"
    columns = ("iteration", "Megatron's layers", "plan by length", "relative difference")
    return Answer(content, title, columns, rows, notes, largest is not None and largest <= MOST_DIFFERENT)
