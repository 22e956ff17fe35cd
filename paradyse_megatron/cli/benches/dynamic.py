"""Plans by length beside stock Megatron and every static configuration, on the same documents and ranks."""

from __future__ import annotations

import argparse
import math
import warnings
from typing import Any

from paradyse_megatron.bench.documents import SPREADS
from paradyse_megatron.bench.levels import INTERCONNECTS
from paradyse_megatron.cli.answer import Answer

EXAMPLE = "paradyse bench dynamic --quick --out dynamic.json"
SHOWN = {
    "speedup_over_best_static": "over the best static choice that trains all documents within the memory limit",
    "speedup_over_best_static_unlimited": "over the best static choice, memory unlimited",
    "speedup_over_stock": "over stock Megatron, memory unlimited",
    "worst_regret_at_any_length": "more time than the best static choice of a range of lengths takes, at worst",
    "noise_floor": "by which the same choice differs from itself on a document",
    "longest_length_over_tp_sp": "times the length that tp_sp trains within the memory limit",
    "longest_length_over_tp_sp_full": "times the length that tp_sp+full trains within the memory limit",
    "tp_sp_over_stock": "of the time of stock Megatron's layers, with the plan tp_sp",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this benchmark."""
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter documents, one interconnect, 19 minutes"
    )
    parser.add_argument(
        "--interconnect",
        action="append",
        choices=list(INTERCONNECTS),
        help="emulate this one; may be given again (default: all, with --quick: node)",
    )
    parser.add_argument(
        "--lengths",
        default="octaves",
        choices=list(SPREADS),
        help="of documents: as many in each octave, or as in the corpus (default: octaves)",
    )
    parser.add_argument(
        "--longest",
        type=int,
        metavar="N",
        help="tokens of the longest document (default: 8192; with --quick 4096, or 2048 between nodes)",
    )
    parser.add_argument(
        "--budget-seconds",
        type=float,
        metavar="T",
        help="for everything; with less, fewer documents are raced (default: as long as it takes; with --quick 1140)",
    )
    parser.add_argument("--num-ranks", type=int, default=2, metavar="P", help="CPU ranks (default: 2)")


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    warnings.simplefilter("ignore")
    from paradyse_megatron.bench.documents import SHORTEST
    from paradyse_megatron.bench.dynamic import bench, size_of

    if asked.num_ranks < 2:
        raise ValueError(f"--num-ranks is {asked.num_ranks}; there is nothing to choose from below 2.")
    if asked.longest is not None and asked.longest <= SHORTEST:
        raise ValueError(f"--longest is {asked.longest}; documents begin at {SHORTEST} tokens, so it must be more.")
    if asked.budget_seconds is not None and not 0 < asked.budget_seconds < math.inf:
        raise ValueError(f"--budget-seconds must be above 0, but it is {asked.budget_seconds}.")
    interconnects = asked.interconnect or (["node"] if asked.quick else list(INTERCONNECTS))
    size = size_of(asked.quick, interconnects, asked.longest, asked.budget_seconds)
    return bench(size, asked.num_ranks, asked.lengths, interconnects)


def answer(content: dict[str, Any]) -> Answer:
    """A row a contender and interconnect, and the ratios."""
    rows = [
        (
            level,
            name,
            f"{rate:,.0f}",
            f"{found['longest_trained_within_limit'].get(name, 0):,}",
            f"{found['predicted_over_measured'][name]:.2f}",
        )
        for level, found in content["levels"].items()
        for name, rate in sorted(found["tokens_per_second"].items(), key=lambda item: -item[1])
    ]
    notes = [f"{_number(content[key])} {text}" for key, text in SHOWN.items()]
    notes += _cut_short(content)
    columns = ("interconnect", "choice", "tokens/s", "longest within the limit", "predicted / measured")
    return Answer(content, "Plans by length against static choices", columns, rows, notes)


def _cut_short(content: dict[str, Any]) -> list[str]:
    """What there was no time for."""
    wanted, said = len(content["lengths"]), []
    for level, found in content["levels"].items():
        if len(found["lengths_raced"]) < wanted:
            said.append(f"{level}: the time ended the race after {len(found['lengths_raced'])} of {wanted} documents")
        if found["untried_within_limit"]:
            names = ", ".join(found["untried_within_limit"])
            said.append(f"{level}: no time to try within the memory limit, taken to train all documents: {names}")
    return said


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
