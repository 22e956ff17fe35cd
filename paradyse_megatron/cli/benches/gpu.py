"""Kernels, attention and strategies checked on this machine's GPU, and the speed of layout conversions."""

from __future__ import annotations

import argparse
from typing import Any

from paradyse_megatron.cli.answer import Answer

EXAMPLE = "paradyse bench gpu --out gpu.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this benchmark."""
    parser.add_argument(
        "--seq-length", type=int, default=32768, metavar="N", help="tokens of the sequence whose conversions are timed"
    )


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    from paradyse_megatron.bench.gpu.run import measure

    if asked.seq_length < 8 or asked.seq_length % 8:
        raise ValueError(f"--seq-length is {asked.seq_length}; give a multiple of 8, as there are 8 simulated ranks.")
    return measure(asked.seq_length)


def answer(content: dict[str, Any]) -> Answer:
    """A row a conversion; the answer is no where a check does not hold."""
    columns = ("model", "conversion", "way", "side", "MiB", "cuda ms", "torch / cuda", "cuda GB/s", "copy GB/s")
    rows = [
        (row["model"], row["conversion"], row["way"], row["side"], f"{row['bytes_moved'] / 2**20:,.0f}",
         f"{row['cuda_ms']:.3f}", f"{row['torch_ms'] / row['cuda_ms']:.2f}", f"{row['cuda_gb_per_s']:,.0f}",
         f"{row['copy_gb_per_s']:,.0f}")
        for row in content["table"]
    ]  # fmt: skip
    failed = [one for one in content["checks"] if not one["holds"]]
    notes = [
        f"{content['num_checks'] - len(failed)} of {content['num_checks']} checks hold; seconds: {content['seconds']}"
    ]
    notes += [f"FAILED: {one['part']}: {one['name']}: {one['found']}" for one in failed]
    title = f"Conversions of {content['seq_length']:,} tokens on {content['gpu']['name']}, P = 8 simulated ranks, bf16"
    return Answer(content, title, columns, rows, notes, not failed)
