"""Ranks that followed other plans, or decide by something else, are named: the same sentence on every rank."""

from __future__ import annotations

import pytest

from paradyse_megatron.runtime.agreement import check_followed


def test_replicas_have_lengths_of_their_own_but_each_one_plan():
    check_followed([(0, 5, 9), (0, 5, 9), (1, 7, 9), (1, 7, 9)], 10)
    with pytest.raises(ValueError, match="^Rank 3 followed other plans, by iteration 10, than rank 2"):
        check_followed([(0, 5, 9), (0, 5, 9), (1, 7, 9), (1, 8, 9)], 10)


def test_corrections_are_the_same_everywhere():
    with pytest.raises(ValueError, match="^Rank 2 has other corrections .* than rank 0.*without --paradyse-feedback"):
        check_followed([(0, 5, 9), (0, 5, 9), (1, 7, 8), (1, 7, 9)], 10)
