"""One document a sample, on top of Megatron's memory-mapped `IndexedDataset`.

The text of a sample is the first `seq_length + 1` tokens of its document; its input is that text without the last
token, its labels that text without the first. So the labels are shifted before anything is cut into shards or padded.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

_REMEDY = "build the dataset again, or name another with --data-path"


@dataclass(frozen=True)
class Sample:
    """One document, cut to at most `seq_length` input tokens; n >= 1 is their number."""

    document_id: int
    """Number of the document in the corpus."""
    tokens: np.ndarray
    """Input tokens, int64 [n]."""
    labels: np.ndarray
    """The token that follows each input token, int64 [n]; 0 where the loss mask is 0."""
    loss_mask: np.ndarray
    """1 where the loss counts, float32 [n]; all 1, but for a document of one token, which has nothing to predict."""


class DocumentDataset:
    """Samples 0 .. len - 1: the documents that have a token, in the order of `documents`."""

    def __init__(
        self,
        indexed: IndexedDataset,
        seq_length: int,
        documents: Sequence[int] | None = None,
        vocab_size: int | None = None,
        longest: int | None = None,
    ) -> None:
        """Index `documents` (default: all) without reading a token; `vocab_size`, if given, bounds the token ids.

        Documents of more than `longest` input tokens, where it is given, are left out.
        """
        self.indexed = indexed
        self.seq_length = seq_length
        self.vocab_size = vocab_size
        chosen = np.asarray(range(num_documents(indexed)) if documents is None else documents, dtype=np.int64)
        num_tokens = document_lengths(indexed)[chosen]
        fits = np.full(len(chosen), True) if longest is None else num_tokens <= longest + 1
        wanted = (num_tokens > 0) & fits
        self.document_ids = chosen[wanted]
        """Document of each sample, int64 [samples]."""
        self.num_document_tokens = num_tokens[wanted]
        """Tokens of each sample's whole document, int64 [samples]."""
        self.lengths = np.clip(self.num_document_tokens - 1, 1, seq_length)
        """Input tokens of each sample, int64 [samples]."""
        self.num_empty = int(np.count_nonzero(num_tokens == 0))
        """Documents left out because they have no token."""
        self.num_too_long = int(np.count_nonzero(~fits))
        """Documents left out because they have more than `longest` input tokens."""
        self.num_truncated = int(np.count_nonzero(self.num_document_tokens > seq_length + 1))
        """Samples that hold only the beginning of their document."""

    def __len__(self) -> int:
        return len(self.document_ids)

    def __getitem__(self, sample_id: int) -> Sample:
        """Read one sample. Raises IndexError beyond the last, ValueError for a token outside the vocabulary."""
        document_id = int(self.document_ids[sample_id])
        text = self._read(document_id, min(int(self.num_document_tokens[sample_id]), self.seq_length + 1))
        if len(text) == 1:
            return Sample(document_id, text, np.zeros(1, np.int64), np.zeros(1, np.float32))
        return Sample(document_id, text[:-1], text[1:], np.ones(len(text) - 1, np.float32))

    def _read(self, document_id: int, count: int) -> np.ndarray:
        """The first `count` tokens, int64; the sequences of a document lie one behind the other."""
        first_sequence = int(self.indexed.document_indices[document_id])
        text = self.indexed.get(first_sequence, 0, count).astype(np.int64)
        if self.vocab_size is not None and (text.min() < 0 or text.max() >= self.vocab_size):
            raise ValueError(
                f"document {document_id} of {self.indexed.path_prefix} holds tokens {text.min()} to {text.max()}, but "
                f"the model has {self.vocab_size} (0 to {self.vocab_size - 1}); --vocab-size and the tokenizer must be "
                "those that the data was made with"
            )
        return text


def num_documents(indexed: IndexedDataset) -> int:
    """Documents in the corpus, those without a token included."""
    return len(indexed.document_indices) - 1


def document_lengths(indexed: IndexedDataset) -> np.ndarray:
    """Tokens of each document, int64 [documents]; a document may consist of several sequences."""
    ends = np.concatenate([[0], np.cumsum(indexed.sequence_lengths, dtype=np.int64)])
    return np.diff(ends[indexed.document_indices])


def open_indexed(prefix: str, mmap: bool = True) -> IndexedDataset:
    """Open `prefix`.bin and `prefix`.idx. Raises ValueError when they are missing, damaged or empty."""
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    for suffix in (".idx", ".bin"):
        if not os.path.isfile(prefix + suffix):
            raise ValueError(_missing(prefix, prefix + suffix))
        if os.path.getsize(prefix + suffix) == 0:
            raise ValueError(f"{prefix}{suffix} is empty; {_REMEDY}")
    _check_index(prefix + ".idx")
    indexed = IndexedDataset(prefix, mmap=mmap)
    _check_tokens(indexed, prefix)
    return indexed


def _missing(prefix: str, path: str) -> str:
    stem, extension = os.path.splitext(prefix)
    if extension in (".bin", ".idx"):
        return f"--data-path {prefix} names no dataset: it takes the prefix without {extension}, here {stem}"
    return (
        f"--data-path {prefix} names no dataset: {path} does not exist; give the prefix of a .bin/.idx pair, or build "
        f"one from text files with: python -m paradyse_megatron.data.corpus --out {prefix}"
    )


def _check_index(path: str) -> None:
    """Magic number, version, type code, number of sequences and of document bounds; then 4 + 8 and 8 bytes for each."""
    header = struct.Struct("<9sQBQQ")
    with open(path, "rb") as file:
        start = file.read(header.size)
    if len(start) < header.size or header.unpack(start)[:2] != (b"MMIDIDX\0\0", 1):
        raise ValueError(f"{path} is not a Megatron index; {_REMEDY}")
    num_sequences, num_bounds = header.unpack(start)[3:]
    expected, found = header.size + 12 * num_sequences + 8 * num_bounds, os.path.getsize(path)
    if found < expected:
        raise ValueError(f"{path} is cut short: it has {found:,} bytes and announces {expected:,}; {_REMEDY}")


def _check_tokens(indexed: IndexedDataset, prefix: str) -> None:
    expected = int(document_lengths(indexed).sum()) * np.dtype(indexed.index.dtype).itemsize
    found = os.path.getsize(prefix + ".bin")
    if found < expected:
        raise ValueError(
            f"{prefix}.bin is damaged or belongs to another dataset: it has {found:,} bytes where {prefix}.idx asks "
            f"for {expected:,}; {_REMEDY}"
        )
