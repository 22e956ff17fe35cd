"""Micro-batches: Megatron's numbering, resumable anywhere, the same wherever they are computed, without end."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from megatron.training.datasets.data_samplers import MegatronPretrainingSampler

from paradyse_megatron.data.documents import DocumentDataset, open_indexed
from paradyse_megatron.data.loader import MicroBatchIterator
from paradyse_megatron.data.order import FixedOrder, SampleOrder
from paradyse_megatron.layouts.padding import pad_to_multiple
from tests.data.datasets import EOD, write_dataset

LENGTHS = [5, 1, 30, 2, 3, 0, 12, 50, 7, 9, 21, 4]  # 11 samples
SEQ_LENGTH = 24


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> DocumentDataset:
    return DocumentDataset(open_indexed(write_dataset(tmp_path_factory.mktemp("data") / "docs", LENGTHS)), SEQ_LENGTH)


def iterator(dataset: DocumentDataset, dp_rank: int = 0, **changes: Any) -> MicroBatchIterator:
    settings: dict[str, Any] = {
        "order": SampleOrder(len(dataset), 5),
        "micro_batch_size": 2,
        "dp_size": 3,
        "group_size": 2,
        "pad_id": EOD,
    } | changes
    return MicroBatchIterator(dataset, dp_rank=dp_rank, **settings)


def take(iterator: MicroBatchIterator, count: int) -> list[dict[str, torch.Tensor]]:
    return list(itertools.islice(iterator, count))


def assert_same(left: list[dict[str, torch.Tensor]], right: list[dict[str, torch.Tensor]]) -> None:
    assert len(left) == len(right) > 0
    for one, other in zip(left, right, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


@settings(deadline=None)  # machines may be busy
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 40), st.integers(1, 200))
def test_each_rank_takes_the_samples_that_megatrons_sampler_gives_it(
    dataset: DocumentDataset, micro_batch_size: int, dp_size: int, consumed: int, num_more: int
) -> None:
    order = SampleOrder(len(dataset), 5)
    for dp_rank in range(dp_size):
        sampler = MegatronPretrainingSampler(consumed + num_more, consumed, micro_batch_size, dp_rank, dp_size)
        ours = iterator(
            dataset, dp_rank, order=order, micro_batch_size=micro_batch_size, dp_size=dp_size, consumed_samples=consumed
        )
        for numbers, batch in zip(itertools.islice(sampler, 4), ours, strict=False):
            expected = [int(dataset.document_ids[order.sample_ids(number, 1)[0]]) for number in numbers]
            assert batch["document_ids"].tolist() == expected


def test_data_parallel_ranks_are_disjoint_and_cover_each_epoch_once(dataset: DocumentDataset) -> None:
    # 11 steps of 6 samples are 6 epochs of 11 samples
    steps = zip(*(take(iterator(dataset, rank), 11) for rank in range(3)), strict=True)
    seen = [document for step in steps for batch in step for document in batch["document_ids"].tolist()]
    for epoch in range(6):
        assert sorted(seen[11 * epoch : 11 * (epoch + 1)]) == dataset.document_ids.tolist()


@pytest.mark.parametrize("num_done", [0, 1, 2, 5, 9])  # an epoch ends within step 2
def test_resuming_in_the_middle_of_an_epoch_equals_going_on(dataset: DocumentDataset, num_done: int) -> None:
    for dp_rank in range(3):
        uninterrupted = take(iterator(dataset, dp_rank), 12)
        resumed = take(iterator(dataset, dp_rank, consumed_samples=num_done * 2 * 3), 12 - num_done)
        assert_same(resumed, uninterrupted[num_done:])


def test_resuming_with_other_sizes_goes_on_in_the_same_order(dataset: DocumentDataset) -> None:
    order = SampleOrder(len(dataset), 5)
    ours = take(iterator(dataset, order=order, micro_batch_size=3, dp_size=1, consumed_samples=12), 5)
    seen = [document for batch in ours for document in batch["document_ids"].tolist()]
    assert seen == dataset.document_ids[order.sample_ids(12, 15)].tolist()


def test_consumed_samples_count_all_ranks(dataset: DocumentDataset) -> None:
    batches = iterator(dataset, consumed_samples=6)
    take(batches, 4)
    assert batches.consumed_samples == 6 + 4 * 2 * 3


def test_each_micro_batch_is_padded_to_its_own_longest(dataset: DocumentDataset) -> None:
    padded = set()
    for batch in take(iterator(dataset), 11):
        longest = int(batch["seq_lengths"].max())
        assert batch["tokens"].shape == (2, pad_to_multiple(longest, 2))
        padded.add(batch["tokens"].shape[1])
    assert len(padded) >= 3 and max(padded) <= SEQ_LENGTH


def test_evaluation_never_ends_on_one_rank_alone(dataset: DocumentDataset) -> None:
    # 11 samples, 3 ranks x 2: the last samples never fill a step
    ranks = [take(iterator(dataset, rank, order=FixedOrder(len(dataset))), 20) for rank in range(3)]
    numbers = [n for step in zip(*ranks, strict=True) for batch in step for n in batch["document_ids"].tolist()]
    assert numbers == [int(dataset.document_ids[i % 11]) for i in range(20 * 6)]


def test_a_batch_larger_than_the_dataset(tmp_path: Path) -> None:
    small = DocumentDataset(open_indexed(write_dataset(tmp_path / "d", [4, 6])), 8)
    batch = next(iterator(small, dp_rank=1, order=FixedOrder(2), micro_batch_size=5, dp_size=2))
    assert batch["document_ids"].tolist() == [1, 0, 1, 0, 1]


def test_two_readers_of_one_replica_get_equal_batches_of_their_own(dataset: DocumentDataset) -> None:
    first, second = take(iterator(dataset), 5), take(iterator(dataset), 5)
    assert_same(first, second)
    first[0]["tokens"].zero_()
    assert second[0]["tokens"].any() and np.array_equal(next(iterator(dataset))["tokens"], second[0]["tokens"])
