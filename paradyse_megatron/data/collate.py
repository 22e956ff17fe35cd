"""Samples of different lengths as one batch, padded on the right.

No attention mask is made: attention is causal, so no real token ever looks at the padding behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from paradyse_megatron.data.documents import Sample
from paradyse_megatron.layouts.padding import pad_to_multiple


def collate(samples: Sequence[Sample], group_size: int, pad_id: int, rows_per_rank: int = 1) -> dict[str, torch.Tensor]:
    """One micro-batch of b >= 1 samples, padded to s, the smallest length from the longest up that all strategies take.

    `tokens` (padding: `pad_id`), `labels` (0) and `position_ids` are int64 [b, s], `loss_mask` (0) is float32 [b, s],
    `seq_lengths` (tokens before padding) and `document_ids` are int64 [b]. `group_size` is the tensor-parallel size,
    `rows_per_rank` what each rank's tokens are padded to a multiple of.
    """
    lengths = [len(sample.tokens) for sample in samples]
    padded = pad_to_multiple(max(lengths), group_size, rows_per_rank)
    positions = torch.arange(padded, dtype=torch.int64)
    return {
        "tokens": _right_padded([sample.tokens for sample in samples], padded, pad_id),
        "labels": _right_padded([sample.labels for sample in samples], padded, 0),
        "loss_mask": _right_padded([sample.loss_mask for sample in samples], padded, 0),
        "position_ids": positions.repeat(len(samples), 1),
        "seq_lengths": torch.tensor(lengths, dtype=torch.int64),
        "document_ids": torch.tensor([sample.document_id for sample in samples], dtype=torch.int64),
    }


def _right_padded(rows: Sequence[np.ndarray], padded: int, fill: int) -> torch.Tensor:
    """The rows below each other, [len(rows), padded], in their own dtype."""
    batch = np.full((len(rows), padded), fill, dtype=rows[0].dtype)
    for target, row in zip(batch, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(batch)
