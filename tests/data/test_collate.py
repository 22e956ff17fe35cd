"""Batches: padded on the right to the longest of the micro-batch, and no further than all strategies need."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paradyse_megatron.data.collate import collate
from paradyse_megatron.data.documents import Sample
from paradyse_megatron.layouts.padding import pad_to_multiple

PAD = 256


def sample(number: int, n: int) -> Sample:
    text = 10 * number + np.arange(n + 1, dtype=np.int64)
    return Sample(number, text[:-1], text[1:], np.ones(n, np.float32))


def test_a_batch_written_out() -> None:
    batch = collate([sample(1, 2), sample(2, 5)], group_size=3, pad_id=PAD)
    assert batch["tokens"].tolist() == [[10, 11, PAD, PAD, PAD, PAD], [20, 21, 22, 23, 24, PAD]]
    assert batch["labels"].tolist() == [[11, 12, 0, 0, 0, 0], [21, 22, 23, 24, 25, 0]]
    assert batch["loss_mask"].tolist() == [[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5]] * 2
    assert batch["seq_lengths"].tolist() == [2, 5]
    assert batch["document_ids"].tolist() == [1, 2]


@pytest.mark.parametrize("group_size", [1, 2, 3, 6, 8])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_samples_shorter_than_the_alignment(group_size: int, n: int) -> None:
    batch = collate([sample(1, n)], group_size, PAD)
    assert batch["tokens"].shape == (1, pad_to_multiple(n, group_size))
    assert batch["loss_mask"].sum() == n


def test_each_rank_may_want_more_rows() -> None:
    batch = collate([sample(1, 70)], group_size=2, pad_id=PAD, rows_per_rank=32)
    assert batch["tokens"].shape == (1, 128) and batch["loss_mask"].sum() == 70


@settings(deadline=None)  # machines may be busy
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 9))
def test_every_real_token_is_there_and_the_rest_counts_for_nothing(lengths: list[int], group_size: int) -> None:
    samples = [sample(number, n) for number, n in enumerate(lengths)]
    batch = collate(samples, group_size, PAD)
    padded = pad_to_multiple(max(lengths), group_size)
    for name in ("tokens", "labels", "loss_mask", "position_ids"):
        assert batch[name].shape == (len(lengths), padded) and batch[name].is_contiguous()
    for row, one in enumerate(samples):
        n = lengths[row]
        assert batch["tokens"][row, :n].tolist() == one.tokens.tolist()
        assert batch["labels"][row, :n].tolist() == one.labels.tolist()
        assert (batch["tokens"][row, n:] == PAD).all() and not batch["labels"][row, n:].any()
        assert batch["loss_mask"][row].tolist() == [1.0] * n + [0.0] * (padded - n)


def test_no_valid_token_in_a_batch_is_a_mask_of_zeros() -> None:
    lonely = Sample(4, np.array([7]), np.array([0]), np.zeros(1, np.float32))
    batch = collate([lonely], 2, PAD)
    assert batch["loss_mask"].tolist() == [[0.0] * 4] and batch["seq_lengths"].tolist() == [1]


def test_types_are_those_that_megatron_expects() -> None:
    batch = collate([sample(1, 4)], 2, PAD)
    assert batch.pop("loss_mask").dtype == torch.float32
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    assert "attention_mask" not in batch
