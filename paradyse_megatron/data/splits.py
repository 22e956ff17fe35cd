"""Train, validation and test parts of a corpus, cut where stock Megatron cuts them.

Contiguous ranges of documents in file order, exactly as megatron-core's dataset builder does for `--split`: a document
that stock Megatron trains on never turns up in our validation part, nor the other way round.
"""

from __future__ import annotations

import re

DEFAULT_SPLIT = "969, 30, 1"  # Megatron's, when --data-path comes without --split
_NUMBER = r"\s*(\d+\.?\d*|\.\d+)\s*"
_WEIGHTS = re.compile(rf"{_NUMBER}(,{_NUMBER}){{0,2}}")


def split_ranges(num_documents: int, split: str) -> tuple[range, range, range]:
    """Documents of the train, validation and test part for weights like "969,30,1" (missing ones count as 0).

    Raises ValueError when `split` is not one to three non-negative numbers with a positive sum.
    """
    from megatron.core.datasets.blended_megatron_dataset_config import (
        convert_split_vector_to_split_matrix,
        parse_and_normalize_split,
    )

    if not _WEIGHTS.fullmatch(split) or not any(float(weight) for weight in split.split(",")):
        raise ValueError(
            f"--split {split!r} cannot be used; it takes up to three weights for training, validation and test data, "
            "none negative and not all 0, like 969,30,1"
        )
    bounds = convert_split_vector_to_split_matrix(parse_and_normalize_split(split))
    train, valid, test = (_scaled(part, num_documents) for part in bounds)
    return train, valid, test


def _scaled(bounds: tuple[float, float] | None, num_documents: int) -> range:
    if bounds is None:
        return range(0)
    start, stop = (round(bound * float(num_documents)) for bound in bounds)
    return range(start, stop)
