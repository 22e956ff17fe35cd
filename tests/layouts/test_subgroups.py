"""Sub-groups and rings, and the zigzag order across sub-groups, replayed on numpy."""

from __future__ import annotations

import numpy as np
import pytest

from paradyse_megatron.layouts.subgroups import ring_of, subgroup_of, ulysses_degree
from paradyse_megatron.layouts.zigzag import (
    causal_pairs,
    num_chunks_sent,
    to_zigzag_exchange,
    zigzag_chunks,
    zigzag_owner,
    zigzag_positions,
)
from tests.layouts.test_zigzag import replay

SIZES = [(ranks, degree) for ranks in (1, 2, 3, 4, 6, 8, 12) for degree in range(1, ranks + 1) if ranks % degree == 0]


@pytest.mark.parametrize(("group_size", "degree"), SIZES)
def test_after_the_exchanges_a_subgroup_has_its_zigzag_chunks_in_order(group_size, degree):
    """Contiguous shards, an all-to-all of the whole group, then the sub-group's tokens in the order of its members."""
    seq_length = 2 * group_size * 3
    contiguous = np.split(np.arange(seq_length), group_size)
    exchanges = [to_zigzag_exchange(rank, group_size, degree) for rank in range(group_size)]
    zigzag = replay(exchanges, contiguous)
    for rank in range(group_size):
        whole = np.concatenate([zigzag[member] for member in subgroup_of(rank, degree)])
        np.testing.assert_array_equal(whole, zigzag_positions(rank // degree, group_size // degree, seq_length))
    back = replay([exchange.inverse() for exchange in exchanges], zigzag)
    np.testing.assert_array_equal(np.stack(back), np.stack(contiguous))
    places = range(group_size // degree)
    work = {causal_pairs(zigzag_positions(place, len(places), seq_length)) for place in places}
    assert len(work) == 1


@pytest.mark.parametrize(("group_size", "degree"), SIZES)
def test_owners_and_holders_agree(group_size, degree):
    held = [chunk for rank in range(group_size) for chunk in zigzag_chunks(rank, group_size, degree)]
    assert sorted(held) == list(range(2 * group_size))
    for rank in range(group_size):
        owners = [zigzag_owner(chunk, group_size, degree) for chunk in zigzag_chunks(rank, group_size, degree)]
        assert owners == [rank] * 2
        if degree == group_size:
            assert num_chunks_sent(rank, group_size, degree) == 0


@pytest.mark.parametrize(("group_size", "degree"), SIZES)
def test_every_rank_is_in_one_subgroup_and_one_ring_which_meet_in_it_alone(group_size, degree):
    for rank in range(group_size):
        subgroup, ring = subgroup_of(rank, degree), ring_of(rank, group_size, degree)
        assert len(subgroup) == degree and len(ring) == group_size // degree
        assert set(subgroup) & set(ring) == {rank}
        assert ring.index(rank) == rank // degree and subgroup.index(rank) == rank % degree
        assert all(subgroup_of(peer, degree) == subgroup for peer in subgroup)
        assert all(ring_of(peer, group_size, degree) == ring for peer in ring)


def test_six_ranks_in_pairs():
    assert [subgroup_of(rank, 2) for rank in (0, 3, 5)] == [(0, 1), (2, 3), (4, 5)]
    assert [ring_of(rank, 6, 2) for rank in (0, 3)] == [(0, 2, 4), (1, 3, 5)]
    assert [zigzag_chunks(rank, 6, 2) for rank in range(6)] == [(0, 1), (10, 11), (2, 3), (8, 9), (4, 5), (6, 7)]


@pytest.mark.parametrize(
    ("group_size", "num_groups", "ranks_per_node", "degree"),
    [
        (8, 8, None, 8),  # enough key/value heads: Ulysses
        (8, 4, None, 4),
        (8, 1, None, 1),  # one: a ring
        (6, 4, None, 2),
        (12, 8, None, 4),
        (16, 16, 8, 8),  # within a node
        (16, 16, 6, 2),
        (4, 8, 8, 4),  # the group is within a node
        (1, 8, 8, 1),
    ],
)
def test_the_degree(group_size, num_groups, ranks_per_node, degree):
    assert ulysses_degree(group_size, num_groups, ranks_per_node) == degree
