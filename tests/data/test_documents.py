"""Samples: one document each, cut after the labels were shifted."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paradyse_megatron.data.documents import DocumentDataset, document_lengths, num_documents, open_indexed
from tests.data.datasets import document, write_dataset

LENGTHS = [1, 2, 3, 4, 0, 8, 9, 10, 100, 0, 1]


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_dataset(tmp_path_factory.mktemp("data") / "docs", LENGTHS)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("seq_length", [1, 2, 8, 1000])
def test_labels_are_the_next_tokens_of_the_document_even_where_it_is_cut(
    prefix: str, seq_length: int, mmap: bool
) -> None:
    dataset = DocumentDataset(open_indexed(prefix, mmap), seq_length)
    num_checked = 0
    for sample_id, number in enumerate(n for n, length in enumerate(LENGTHS) if length > 1):
        sample = next(s for s in map(dataset.__getitem__, range(len(dataset))) if s.document_id == number)
        whole = document(number, LENGTHS[number]).astype(np.int64)
        n = min(LENGTHS[number] - 1, seq_length)
        np.testing.assert_array_equal(sample.tokens, whole[:n])
        np.testing.assert_array_equal(sample.labels, whole[1 : n + 1])  # the last label is a token beyond the cut
        np.testing.assert_array_equal(sample.loss_mask, np.ones(n))
        num_checked += sample_id >= 0
    assert num_checked == 7


def test_ids_0_to_7_have_labels_1_to_7_and_the_token_after(tmp_path: Path) -> None:
    dataset = DocumentDataset(open_indexed(write_dataset(tmp_path / "d", [20])), 8)
    assert dataset[0].tokens.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert dataset[0].labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_document_of_one_token_is_one_input_token_without_loss(prefix: str) -> None:
    dataset = DocumentDataset(open_indexed(prefix), 8)
    ones = [dataset[i] for i in range(len(dataset)) if dataset[i].document_id in (0, 10)]
    assert [(s.tokens.tolist(), s.labels.tolist(), s.loss_mask.tolist()) for s in ones] == [
        ([0], [0], [0.0]),
        ([70], [0], [0.0]),
    ]


def test_documents_without_tokens_are_left_out_and_counted(prefix: str) -> None:
    dataset = DocumentDataset(open_indexed(prefix), 8)
    assert dataset.document_ids.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 10]
    assert (dataset.num_empty, dataset.num_truncated) == (2, 2)  # 10 and 100 tokens are more than 8 + 1
    assert num_documents(dataset.indexed) == len(LENGTHS)
    assert document_lengths(dataset.indexed).tolist() == LENGTHS


def test_lengths_are_those_of_the_samples_and_need_no_tokens(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed = open_indexed(prefix)
    with monkeypatch.context() as patch:
        patch.setattr(type(indexed), "get", None)
        patch.setattr(type(indexed), "__getitem__", None)
        dataset = DocumentDataset(indexed, 8)
        lengths = dataset.lengths.tolist()
    assert lengths == [1, 1, 2, 3, 7, 8, 8, 8, 1]
    assert lengths == [len(dataset[i].tokens) for i in range(len(dataset))]


@settings(deadline=None)  # machines may be busy
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any), st.integers(1, 30))
def test_tokens_and_labels_always_have_the_announced_length(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], seq_length: int
) -> None:
    dataset = DocumentDataset(open_indexed(write_dataset(tmp_path_factory.mktemp("d") / "d", lengths)), seq_length)
    for sample_id in range(len(dataset)):
        sample = dataset[sample_id]
        n = dataset.lengths[sample_id]
        assert 1 <= n <= seq_length
        assert len(sample.tokens) == len(sample.labels) == len(sample.loss_mask) == n
        assert sample.loss_mask.sum() == (0 if lengths[sample.document_id] == 1 else n)


def test_a_part_of_the_documents(prefix: str) -> None:
    dataset = DocumentDataset(open_indexed(prefix), 8, documents=range(3, 7))
    assert dataset.document_ids.tolist() == [3, 5, 6] and dataset.num_empty == 1
    assert len(DocumentDataset(dataset.indexed, 8, documents=range(0))) == 0


def test_beyond_the_last_sample_is_an_index_error(prefix: str) -> None:
    dataset = DocumentDataset(open_indexed(prefix), 8)
    with pytest.raises(IndexError):
        dataset[len(dataset)]


def test_lengths_add_up_beyond_32_bits() -> None:
    class Huge:
        sequence_lengths = np.array([2**31 - 1, 2**31 - 1, 5], dtype=np.int32)
        document_indices = np.array([0, 2, 3], dtype=np.int64)

    assert document_lengths(Huge()).tolist() == [2**32 - 2, 5]


def test_a_token_outside_the_vocabulary_names_its_document(prefix: str) -> None:
    indexed = open_indexed(prefix)
    assert DocumentDataset(indexed, 200, vocab_size=156)[7].tokens.max() == 154
    with pytest.raises(
        ValueError, match=r"document 8 of .* holds tokens 56 to 155, but the model has 155 .*--vocab-size"
    ):
        DocumentDataset(indexed, 200, vocab_size=155)[7]


def test_a_dataset_travels_to_another_process(prefix: str) -> None:
    dataset = DocumentDataset(open_indexed(prefix), 8)
    copy = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(copy[5].tokens, dataset[5].tokens)


def test_missing_data_says_what_to_do(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(
        ValueError, match=r"--data-path .*none names no dataset: .*none\.idx does not exist; .*data\.corpus"
    ):
        open_indexed(str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"takes the prefix without \.bin, here .*docs$"):
        open_indexed(prefix + ".bin")


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("suffix", "num_bytes", "sentence"),
    [
        ("idx", 0, "idx is empty"),
        ("idx", 20, "idx is not a Megatron index"),
        ("idx", 90, "idx is cut short: it has 90 bytes and announces 94"),
        ("bin", 0, "bin is empty"),
        ("bin", 50, "bin is damaged or belongs to another dataset: it has 50 bytes where"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, suffix: str, num_bytes: int, sentence: str) -> None:
    prefix = write_dataset(tmp_path / "docs", [30, 40])
    os.truncate(f"{prefix}.{suffix}", num_bytes)
    with pytest.raises(ValueError, match=rf"{sentence}.*--data-path"):
        open_indexed(prefix)


def test_a_file_that_is_no_index_is_named(tmp_path: Path) -> None:
    prefix = write_dataset(tmp_path / "docs", [30, 40])
    Path(prefix + ".idx").write_bytes(b"something else" * 20)
    with pytest.raises(ValueError, match="idx is not a Megatron index"):
        open_indexed(prefix)
