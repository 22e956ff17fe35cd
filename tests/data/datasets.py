"""Small Megatron datasets with known tokens, written by stock Megatron's own builder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

EOD = 256


def document(number: int, num_tokens: int) -> np.ndarray:
    """Tokens that tell documents and places apart: 7 * number, 7 * number + 1, ... (modulo 251), uint16."""
    return ((7 * number + np.arange(num_tokens)) % 251).astype(np.uint16)


def write_dataset(prefix: Path, lengths: Sequence[int]) -> str:
    """Documents `document(0, lengths[0])`, ... at `prefix`; an odd-numbered one consists of two sequences."""
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    for number, length in enumerate(lengths):
        first = length // 3 if number % 2 else length
        sequences = [first, length - first] if number % 2 else [length]
        builder.add_document(document(number, length), sequences)
    builder.finalize(f"{prefix}.idx")
    return str(prefix)
