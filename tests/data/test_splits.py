"""Parts of the corpus: cut where stock Megatron cuts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.blended_megatron_dataset_config import BlendedMegatronDatasetConfig

from paradyse_megatron.data.splits import DEFAULT_SPLIT, split_ranges


class Documents:
    """Takes the place of Megatron's dataset class: records the documents that Megatron gives to each part."""

    def __init__(self, low_level: int, path: str, indices: object, *args: object) -> None:
        self.indices = indices

    @staticmethod
    def build_low_level_dataset(path: str, config: object) -> int:
        return int(path)

    @staticmethod
    def numel_low_level_dataset(low_level: int) -> int:
        return low_level


def megatrons_parts(num_documents: int, split: str) -> list[list[int]]:
    config = BlendedMegatronDatasetConfig(
        random_seed=1,
        sequence_length=8,
        blend=([str(num_documents)], None),
        split=split,
        path_to_cache=None,
        tokenizer=None,
        mid_level_dataset_surplus=0.005,
    )
    builder = BlendedMegatronDatasetBuilder(Documents, [1, 1, 1], lambda: True, config)
    parts = builder._build_megatron_dataset_splits(str(num_documents), config.split_matrix, [1, 1, 1])
    return [[] if part is None else list(part.indices) for part in parts]


@pytest.mark.parametrize(
    "split", [DEFAULT_SPLIT, "969,30,1", "90,5,5", "8,1,1", "1", "99,1", "0,1,1", "0.5,.25,.25", "1,0,1"]
)
@pytest.mark.parametrize("num_documents", [1, 2, 7, 333, 1713])
def test_documents_fall_where_stock_megatron_puts_them(num_documents: int, split: str) -> None:
    assert [list(part) for part in split_ranges(num_documents, split)] == megatrons_parts(num_documents, split)


@settings(deadline=None)  # machines may be busy
@given(st.integers(0, 5000), st.tuples(*[st.integers(0, 1000)] * 3).filter(any))
def test_every_document_is_in_exactly_one_part(num_documents: int, weights: tuple[int, int, int]) -> None:
    parts = split_ranges(num_documents, ",".join(map(str, weights)))
    assert [document for part in parts for document in part] == list(range(num_documents))
    assert all(weight or not part for weight, part in zip(weights, parts, strict=True))


@pytest.mark.parametrize("split", ["", "abc", "0,0,0", "1,2,3,4", "-1,2", "1;2", "1,,2", "1,2,", "nan", "1e3"])
def test_weights_that_make_no_sense_are_refused(split: str) -> None:
    with pytest.raises(ValueError, match=r"--split .* cannot be used; it takes up to three weights"):
        split_ranges(10, split)
