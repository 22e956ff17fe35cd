"""The micro-batches of one data-parallel rank, without end and by arithmetic alone.

Like Megatron's sampler: the samples of the run are numbered, `micro_batch_size * dp_size` consecutive numbers make the
micro-batches of all data-parallel ranks, and rank r takes the r-th slice of them. That number is what
`consumed_train_samples` counts, so a resumed run goes on where it stopped, with other batch or data-parallel sizes too.
All tensor- and pipeline-parallel ranks of a replica build the same iterator and read for themselves; nothing is
broadcast. No rank ever runs out: after the last sample of an epoch the next epoch begins, within a micro-batch if
need be.
"""

from __future__ import annotations

import torch

from paradyse_megatron.data.collate import collate
from paradyse_megatron.data.documents import DocumentDataset
from paradyse_megatron.data.order import Order


class MicroBatchIterator:
    """Yields what `collate` makes; `consumed_samples` counts the samples of all data-parallel ranks."""

    def __init__(
        self,
        dataset: DocumentDataset,
        order: Order,
        *,
        micro_batch_size: int,
        dp_rank: int,
        dp_size: int,
        group_size: int,
        pad_id: int,
        rows_per_rank: int = 1,
        consumed_samples: int = 0,
    ) -> None:
        """`group_size` and `rows_per_rank` are those of `collate`; `consumed_samples` is where to start."""
        assert order.num_samples == len(dataset), (order.num_samples, len(dataset))
        assert micro_batch_size > 0 and 0 <= dp_rank < dp_size and consumed_samples >= 0
        self.dataset = dataset
        self.order = order
        self.micro_batch_size = micro_batch_size
        self.dp_rank = dp_rank
        self.dp_size = dp_size
        self.group_size = group_size
        self.pad_id = pad_id
        self.rows_per_rank = rows_per_rank
        self.consumed_samples = consumed_samples

    def __iter__(self) -> MicroBatchIterator:
        return self

    def __next__(self) -> dict[str, torch.Tensor]:
        first = self.consumed_samples + self.dp_rank * self.micro_batch_size
        sample_ids = self.order.sample_ids(first, self.micro_batch_size)
        self.consumed_samples += self.micro_batch_size * self.dp_size
        samples = [self.dataset[sample_id] for sample_id in sample_ids]
        return collate(samples, self.group_size, self.pad_id, self.rows_per_rank)
