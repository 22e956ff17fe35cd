"""How much padding and waiting each order of samples leaves on the demo's documents. Arithmetic alone, no clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from paradyse_megatron.data.balance import BalancedOrder, BatchShape
from paradyse_megatron.data.corpus import default_folder, select_files
from paradyse_megatron.data.order import Order, SampleOrder
from paradyse_megatron.layouts.padding import padding_multiple

SEQ_LENGTH = 4096
"""Of the demo."""
GROUP_SIZE = 2
MICRO_BATCHES_A_BATCH = 4
NUM_EPOCHS = 3
SIZES = (1, 2, 4)
"""Of micro-batches, in samples; and data-parallel ranks."""
SEED = 1234


def bench() -> dict[str, Any]:
    """By order: a row for each size of micro-batch and number of data-parallel ranks, and the worst of those."""
    lengths = demo_lengths()
    rows = [
        {"order": order, "micro_batch_size": micro, "data_parallel_ranks": ranks}
        | dict(zip(("padding", "max_over_mean"), _weighed(order, lengths, micro, ranks), strict=True))
        for order in ("window", "batch", "shuffled")
        for micro in SIZES
        for ranks in SIZES
    ]
    worst = {
        f"{figure}_worst_{order}": max(row[figure] for row in rows if row["order"] == order)
        for order in dict.fromkeys(row["order"] for row in rows)
        for figure in ("padding", "max_over_mean")
    }
    return {"num_documents": len(lengths), "seq_length": SEQ_LENGTH, "group_size": GROUP_SIZE, **worst, "table": rows}


def demo_lengths() -> np.ndarray:
    """Tokens of the standard library's source files, cut as the demo cuts them."""
    sizes = np.array([file.stat().st_size for file in select_files(default_folder(), "**/*.py", Path("none"))])
    return np.clip(sizes[sizes > 0], 1, SEQ_LENGTH)


def _weighed(order: str, lengths: np.ndarray, micro_batch_size: int, num_ranks: int) -> tuple[float, float]:
    step = micro_batch_size * num_ranks
    shape = BatchShape(micro_batch_size, num_ranks, MICRO_BATCHES_A_BATCH * step)
    if order == "shuffled":
        return padding_and_imbalance(SampleOrder(len(lengths), SEED), lengths, shape)
    window = shape.window() if order == "window" else shape.global_batch_size
    return padding_and_imbalance(BalancedOrder(lengths, SEED, shape, window), lengths, shape)


def padding_and_imbalance(order: Order, lengths: np.ndarray, shape: BatchShape) -> tuple[float, float]:
    """Over some epochs: share of padding in the micro-batches, and longest over mean time of the ranks, by step.

    Times are quadratic in the length alone, which asks more of the order than any layer does.
    """
    multiple = padding_multiple(GROUP_SIZE)
    count = NUM_EPOCHS * len(lengths) // shape.global_batch_size * shape.global_batch_size
    ids = order.sample_ids(0, count).reshape(-1, shape.dp_size, shape.micro_batch_size)
    padded = -(-lengths[ids].max(axis=2) // multiple) * multiple
    times = padded.astype(float) ** 2
    padding = 1 - lengths[ids].sum() / (padded.sum() * shape.micro_batch_size)
    return float(padding), float(times.max(axis=1).sum() / times.mean(axis=1).sum())
