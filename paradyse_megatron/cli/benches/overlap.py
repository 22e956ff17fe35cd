"""Weights fetched a layer ahead and ring hops behind attention, each on against off over an emulated link."""

from __future__ import annotations

import argparse
import warnings
from typing import Any

from paradyse_megatron.cli.answer import Answer

EXAMPLE = "paradyse bench overlap --out overlap.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this benchmark."""
    parser.add_argument("--num-ranks", type=int, default=2, metavar="P", help="CPU ranks (default: 2)")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="pairs of on and off (default: 5)")


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    warnings.simplefilter("ignore")
    from paradyse_megatron.bench.overlap import bench

    if asked.num_ranks < 2 or asked.repetitions < 1:
        raise ValueError(f"--num-ranks {asked.num_ranks} must be at least 2, --repetitions {asked.repetitions} 1.")
    return bench(asked.num_ranks, asked.repetitions)


def answer(content: dict[str, Any]) -> Answer:
    """A row a kind of overlap."""
    cases = {name: found for name, found in content.items() if isinstance(found, dict) and "off_over_on" in found}
    columns = ("overlap", "plan", "tokens", "Mbit/s", "on ms", "off ms", "communication, off", "off / on")
    rows = [
        (name, found["plan"], f"{found['seq_length']:,}", f"{found['rate_mbit']:,.0f}", f"{found['on_ms']:,.0f}",
         f"{found['off_ms']:,.0f}", f"{found['communication_share_off']:.0%}", f"{found['off_over_on']:.2f}")
        for name, found in cases.items()
    ]  # fmt: skip
    return Answer(content, "What overlap brings", columns, rows, [f"{content['machine']}, {content['date']}"])
