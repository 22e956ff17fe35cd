"""What deciding and recording cost in training, beside the same plans set beforehand."""

from __future__ import annotations

import argparse
import warnings
from typing import Any

EXAMPLE = "paradyse bench decisions --documents 8 --rounds 2 --out decisions.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this benchmark."""
    parser.add_argument("--num-ranks", type=int, default=2, metavar="P", help="CPU ranks (default: 2)")
    parser.add_argument("--documents", type=int, default=24, metavar="N", help="documents to train on (default: 24)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="times to train on each (default: 5)")


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    warnings.simplefilter("ignore")
    from paradyse_megatron.bench.decisions import bench

    least = {"--num-ranks": asked.num_ranks, "--documents": asked.documents, "--rounds": asked.rounds}
    for flag, number in least.items():
        if number < 1:
            raise ValueError(f"{flag} must be at least 1, but it is {number}.")
    return bench(asked.num_ranks, asked.documents, asked.rounds)
