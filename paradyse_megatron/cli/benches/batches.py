"""Padding and waiting under each --paradyse-batch-order, on the demo's documents."""

from __future__ import annotations

import argparse
from typing import Any

from paradyse_megatron.bench.batches import bench
from paradyse_megatron.cli.answer import Answer

EXAMPLE = "paradyse bench batches --out batches.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No flags of its own."""


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    return bench()


def answer(content: dict[str, Any]) -> Answer:
    """A row an order and shape of batches."""
    rows = [
        (row["order"], str(row["micro_batch_size"]), str(row["data_parallel_ranks"]), f"{row['padding']:.1%}",
         f"{row['max_over_mean']:.3f}")
        for row in content["table"]
    ]  # fmt: skip
    columns = ("order", "micro-batch", "data-parallel ranks", "padding", "longest over mean time")
    cut = f"{content['num_documents']:,} documents, cut at {content['seq_length']:,} tokens"
    notes = [f"{cut}; times quadratic in length"]
    return Answer(content, "Padding and waiting by batch order", columns, rows, notes)
