"""The one padding rule: which sequence lengths every strategy accepts.

Token-sharded layouts need a multiple of P; `ring` cuts the sequence into 2P equal chunks (zigzag order), so 2P is the
smallest number that all strategies accept. Nothing else in the code base may derive this number again.

Products in fp8 want more: a multiple of `FP8_ROWS` tokens on each rank.
"""

from __future__ import annotations

import math
import operator
from typing import SupportsIndex

FP8_ROWS = 32
"""What Megatron aligns fp8 products to (`fp8_utils.get_fp8_align_size`): 32 for the recipe mxfp8, 16 for the others."""


def padding_multiple(group_size: SupportsIndex, rows_per_rank: int = 1) -> int:
    """Lengths accepted by all strategies are the multiples of this number of tokens.

    Args:
        group_size: ranks P of the model-parallel group.
        rows_per_rank: what each rank's tokens must be a multiple of.

    Raises:
        ValueError: `group_size` is not a whole number of at least 1.
    """
    num_ranks = positive_whole(group_size, "The group size", "rank")
    return math.lcm(1 if num_ranks == 1 else 2 * num_ranks, num_ranks * rows_per_rank)


def pad_to_multiple(seq_length: SupportsIndex, group_size: SupportsIndex, rows_per_rank: int = 1) -> int:
    """Smallest accepted length, in tokens, that is at least `seq_length`.

    Raises:
        ValueError: `seq_length` or `group_size` is not a whole number of at least 1.
    """
    multiple = padding_multiple(group_size, rows_per_rank)
    num_tokens = positive_whole(seq_length, "The sequence length", "token")
    return -(-num_tokens // multiple) * multiple


def positive_whole(number: SupportsIndex, what: str, unit: str) -> int:
    """`number` as a Python int (which never overflows), whatever integer type it had.

    Args:
        what: names the number in the error, "The sequence length".
        unit: singular of what is counted, "token".

    Raises:
        ValueError: not an integer, a bool, or less than 1.
    """
    try:
        whole = operator.index(number)
    except TypeError:
        whole = None
    if whole is None or isinstance(number, bool):
        raise ValueError(f"{what} must be a whole number of {unit}s, but it is {number!r}.")
    if whole < 1:
        raise ValueError(f"{what} must be at least 1 {unit}, but it is {whole}.")
    return whole
