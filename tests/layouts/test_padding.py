"""The padding rule: accepted by every strategy, minimal, one error sentence for what is not a length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paradyse_megatron.layouts.padding import FP8_ROWS, pad_to_multiple, padding_multiple
from paradyse_megatron.layouts.zigzag import zigzag_positions


def accepted_by_all(seq_length: int, group_size: int) -> bool:
    """What the strategies need, said independently: equal token shards, and for ring (P > 1) two chunks a shard."""
    return group_size == 1 or (seq_length % group_size == 0 and (seq_length // group_size) % 2 == 0)


@given(st.integers(1, 5000), st.integers(1, 64))
def test_smallest_accepted_length(seq_length, group_size):
    padded = pad_to_multiple(seq_length, group_size)
    candidates = range(seq_length, seq_length + 2 * group_size + 1)
    assert padded == next(length for length in candidates if accepted_by_all(length, group_size))


@pytest.mark.parametrize("group_size", [1, 2, 3, 4, 5, 6, 8])
def test_the_multiple_is_accepted_and_minimal(group_size):
    multiple = padding_multiple(group_size)
    accepted = [length for length in range(1, 4 * group_size + 1) if accepted_by_all(length, group_size)]
    assert accepted[0] == multiple
    if group_size > 1:
        assert sum(zigzag_positions(rank, group_size, multiple).size for rank in range(group_size)) == multiple


def test_tiny_samples_at_eight_ranks():
    assert [pad_to_multiple(length, 8) for length in (1, 2, 3, 16, 17)] == [16, 16, 16, 16, 32]


@pytest.mark.parametrize("group_size", [1, 2, 3, 6, 8])
def test_in_fp8_each_rank_has_a_multiple_of_32_tokens(group_size):
    for length in (1, 31, 33, 32 * group_size, 32 * group_size + 1, 1000):
        padded = pad_to_multiple(length, group_size, FP8_ROWS)
        candidates = range(length, length + 64 * group_size + 1)
        assert padded == next(n for n in candidates if accepted_by_all(n, group_size) and n % (32 * group_size) == 0)
    assert pad_to_multiple(padded, group_size) == padded == pad_to_multiple(padded, group_size, FP8_ROWS)


def test_numpy_integers_do_not_overflow():
    padded = pad_to_multiple(np.int32(2**31 - 1), 8)
    assert padded == 2**31 and type(padded) is int


@pytest.mark.parametrize(
    ("seq_length", "group_size", "named"),
    [
        (0, 8, "The sequence length must be at least 1 token, but it is 0"),
        (-4, 2, "but it is -4"),
        (12.0, 2, "whole number of tokens, but it is 12.0"),
        ("12", 2, "'12'"),
        (True, 2, "True"),
        (12, 0, "The group size must be at least 1 rank, but it is 0"),
        (12, 2.0, "whole number of ranks"),
    ],
)
def test_what_is_not_a_length_is_one_sentence(seq_length, group_size, named):
    with pytest.raises(ValueError, match=named) as error:
        pad_to_multiple(seq_length, group_size)
    assert str(error.value).count(". ") == 0 and str(error.value).endswith(".")
