"""Layout conversions by torch's permutes, by the host executor, and a plain copy of the same bytes."""

from __future__ import annotations

import argparse
import os
from typing import Any

from paradyse_megatron.cli.answer import Answer

EXAMPLE = "paradyse bench conversions --seq-length 32768 --out conversions.json"
BARS = {"host_over_torch_speedup_median": 2.0, "host_fraction_of_memcpy": 0.7}
"""The least that the host executor is to reach, with one thread."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this benchmark."""
    parser.add_argument("--seq-length", type=int, default=32768, metavar="N", help="tokens of the sequence")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="turns, whose medians count")
    parser.add_argument(
        "--max-threads", type=int, metavar="N", help="measure with 1 and with N threads (default: all processors)"
    )


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    from paradyse_megatron.bench import conversions

    if asked.seq_length < 1 or asked.seq_length % max(conversions.GROUP_SIZES):
        raise ValueError(
            f"--seq-length is {asked.seq_length}, which {max(conversions.GROUP_SIZES)} ranks cannot share evenly; "
            f"give a multiple of {max(conversions.GROUP_SIZES)}."
        )
    if asked.repetitions < 1:
        raise ValueError(f"--repetitions is {asked.repetitions}; it has to be at least 1.")
    max_threads = (os.cpu_count() or 1) if asked.max_threads is None else asked.max_threads
    if max_threads < 1:
        raise ValueError(f"--max-threads is {max_threads}; it has to be at least 1.")
    return conversions.measure(asked.seq_length, asked.repetitions, max_threads)


def answer(content: dict[str, Any]) -> Answer:
    """A row a conversion; the answer is no where the figures miss their bars."""
    columns = ("model", "P", "conversion", "direction", "threads", "MiB", "torch ms", "host ms", "torch / host",
               "memcpy ms", "memcpy / host")  # fmt: skip
    rows = [
        (row["model"], str(row["group_size"]), row["conversion"], row["direction"], str(row["num_threads"]),
         f"{row['bytes_read_and_written'] / 2**20:,.0f}", f"{row['torch_ms']:.2f}", f"{row['host_ms']:.2f}",
         f"{row['host_over_torch_speedup']:.2f}", f"{row['memcpy_ms']:.2f}", f"{row['host_fraction_of_memcpy']:.2f}")
        for row in content["table"]
    ]  # fmt: skip
    notes = [f"{name} with one thread: {content[name]}, to be at least {bar}" for name, bar in BARS.items()]
    title = f"Both sides of conversions of {content['seq_length']:,} tokens in {content['dtype']}"
    return Answer(content, title, columns, rows, notes, all(content[name] >= bar for name, bar in BARS.items()))
