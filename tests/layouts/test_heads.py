"""Who attends with which heads, and in which chunk: every head once, on the rank that owns it, with its keys."""

from __future__ import annotations

import pytest

from paradyse_megatron.layouts.heads import HeadDealing, head_chunks, num_head_chunks

SHAPES = [
    (heads, groups, ranks)
    for heads in (6, 8, 12, 24, 32)
    for groups in (1, 2, 3, 4, 6, 8, 12, 24, 32)
    for ranks in (1, 2, 3, 4, 6, 8)
    if heads % groups == 0 and heads % ranks == 0 and (groups % ranks == 0 or ranks % groups == 0)
]
WISHES = ("fewest_bytes", "fastest", 1, 2, 3, 4, 5, 7, 100)


def test_the_sharing_of_two_heads_by_eight_ranks():
    dealing = HeadDealing(16, 2, 8)
    assert (dealing.num_copies, dealing.own_heads, dealing.own_groups, dealing.heads_per_own_group) == (4, 2, 1, 2)
    assert [rank // dealing.num_copies for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("wish", WISHES)
def test_chunks_hold_every_own_head_once_in_order_and_bring_its_keys(wish):
    for shape in SHAPES:
        dealing = HeadDealing(*shape)
        chunks = head_chunks(dealing, wish)
        assert len(chunks) == num_head_chunks(dealing, wish)
        places, arrived, here = [], [], []
        for chunk in chunks:
            groups = list(range(chunk.groups.start, chunk.groups.stop))
            if chunk.brings_keys:
                here = groups
                arrived += groups
            assert groups == here and len(groups) == chunk.num_groups > 0
            heads = [
                group * dealing.heads_per_own_group + head
                for group in groups
                for head in range(chunk.heads.start, chunk.heads.stop)
            ]
            assert len(heads) == chunk.num_heads > 0
            places += heads
            if chunk.ends_keys:
                here = []
        assert places == list(range(dealing.own_heads)) and arrived == list(range(dealing.own_groups)) and not here
        sizes = {chunk.num_heads for chunk in chunks}
        assert max(sizes) - min(sizes) <= dealing.heads_per_own_group
    assert len(SHAPES) > 60


def test_the_owner_of_a_query_head_has_its_key():
    for heads, groups, ranks in SHAPES:
        dealing = HeadDealing(heads, groups, ranks)
        for head in range(heads):
            rank, own = divmod(head, dealing.own_heads)
            own_group = own // dealing.heads_per_own_group
            group = rank // dealing.num_copies * dealing.own_groups + own_group
            assert group == head // (heads // groups)


@pytest.mark.parametrize(
    ("shape", "wish", "number"),
    [
        ((32, 8, 8), "fewest_bytes", 4),  # Llama 3 8B: one key/value head a rank, serving four query heads
        ((32, 8, 8), "fastest", 2),
        ((32, 8, 2), "fastest", 2),
        ((32, 8, 2), 3, 3),  # chunks of whole key/value heads may differ in size
        ((32, 8, 2), 6, 4),  # beyond one a key/value head, as many parts of each
        ((32, 8, 2), 8, 8),
        ((32, 8, 2), 100, 16),
        ((8, 8, 8), "fastest", 1),  # one head a rank is one chunk
        ((16, 1, 4), 3, 3),
    ],
)
def test_the_number_of_chunks(shape, wish, number):
    assert num_head_chunks(HeadDealing(*shape), wish) == number


def test_what_cannot_be_dealt_is_a_sentence():
    with pytest.raises(ValueError, match="12 attention heads cannot be dealt evenly to 5 ranks"):
        HeadDealing(12, 12, 5)
    with pytest.raises(ValueError, match="4 key/value heads can be neither dealt evenly to 6 ranks nor each shared by"):
        HeadDealing(12, 4, 6)
    with pytest.raises(ValueError, match="head chunks must be at least 1, but it is 0"):
        head_chunks(HeadDealing(12, 12, 2), 0)
