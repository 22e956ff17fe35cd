"""Conversions without a wire: where tensors go in peers' memory, against the integer plan, element by element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paradyse_megatron.layouts.blocks import block_plan
from paradyse_megatron.layouts.conversion import context_to_tokens, contiguous_to_zigzag, qkv_to_heads
from paradyse_megatron.layouts.direct import landing_of, peer_sections
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing
from tests.layouts.test_conversion import RANKS, attention_sizes, contiguous_strides, pairs_of_blocks

MAX_SECTIONS_OF_LAUNCH = 4


def first_places(layout) -> np.ndarray:
    """Where each tensor begins, when they lie one after the other."""
    return np.cumsum([0, *(int(np.prod(shape)) for shape in layout.shapes)])


def places(section, strides, start: int, peer: int, first_peer: int) -> np.ndarray:
    """All places of a section that are for one peer, in the order of its axes."""
    peers, copies = section.extents[:2]
    index = peer - first_peer
    if not 0 <= index < peers * copies:
        return np.zeros(0, int)
    found = np.array([start + index // copies * strides.peer + index % copies * strides.copy])
    for extent, stride in list(zip(section.extents, strides, strict=True))[2:]:
        found = np.add.outer(found, np.arange(extent) * stride)
    return np.add.outer(found, np.arange(section.width)).ravel()


def pairs_to(conversion, rank: int, peer: int) -> list[tuple[int, int]]:
    """(place in the rank's tensors, place in the peer's landing)."""
    first = first_places(conversion.source)
    pairs: list[tuple[int, int]] = []
    for one in peer_sections(conversion, rank, contiguous_strides(conversion.source.shapes)):
        section = one.section
        local = places(section, section.local, section.local_start, peer, one.first_peer) + first[section.tensor]
        landed = places(section, section.wire, section.wire_start, peer, one.first_peer)
        pairs += zip(local.tolist(), landed.tolist(), strict=True)
    return pairs


def assert_lands(conversion, by_tokens_first: bool, num_ranks: int) -> None:
    ends = (conversion.source, conversion.target)
    plan = block_plan(*(ends if by_tokens_first else ends[::-1]), num_ranks)
    plan = plan if by_tokens_first else plan.inverse()
    landing = landing_of(conversion.target)
    first = first_places(conversion.target)
    for rank in range(num_ranks):
        for peer in range(num_ranks):
            found = pairs_to(conversion, rank, peer)
            assert len(found) == len(set(found))
            if landing.is_wire:  # what the peer then takes from its wire is the plan's
                taken = dict(sorted(pairs_of_blocks(plan.unpacks[peer])))
                found = [(local, taken[place]) for local, place in found]
            else:
                which = np.searchsorted(landing.starts, [place for _, place in found], side="right") - 1
                found = [
                    (local, place - landing.starts[tensor] + int(first[tensor]))
                    for (local, place), tensor in zip(found, which.tolist(), strict=True)
                ]
            assert set(found) == pairs_of_blocks(plan.direct[rank][peer])


SHARED = AttentionSizes(HeadDealing(16, 2, 8), 3, 5, 2)


@settings(deadline=None, max_examples=15)
@given(sizes=attention_sizes())
@example(sizes=SHARED)
@example(sizes=AttentionSizes(HeadDealing(3, 3, 3), 1, 1, 1))
def test_every_element_lands_where_the_plan_says_there_and_back(sizes):
    qkv, context = qkv_to_heads(sizes), context_to_tokens(sizes)
    for conversion, by_tokens_first in ((qkv, True), (qkv.inverse, False), (context, False), (context.inverse, True)):
        assert_lands(conversion, by_tokens_first, sizes.dealing.num_ranks)
    assert landing_of(qkv.source).is_wire == (sizes.dealing.num_copies > 1)
    assert not landing_of(qkv.target).is_wire and not landing_of(context.target).is_wire


@pytest.mark.parametrize("num_ranks", [*RANKS, 6])
def test_every_chunk_lands_where_the_plan_says(num_ranks):
    for subgroup_size in (size for size in range(1, num_ranks) if num_ranks % size == 0):
        conversion = contiguous_to_zigzag(num_ranks, subgroup_size, 7)
        assert_lands(conversion, True, num_ranks)
        assert_lands(conversion.inverse, False, num_ranks)


@settings(deadline=None, max_examples=15)
@given(sizes=attention_sizes())
@example(sizes=SHARED)
def test_few_sections_serve_all_peers(sizes):
    """One launch is enough, however many ranks there are."""
    for conversion in (qkv_to_heads(sizes), context_to_tokens(sizes)):
        for one in (conversion, conversion.inverse):
            for rank in range(sizes.dealing.num_ranks):
                strides = contiguous_strides(one.source.shapes)
                assert len(peer_sections(one, rank, strides)) <= MAX_SECTIONS_OF_LAUNCH


@st.composite
def _rank_and_sizes(draw):
    sizes = draw(attention_sizes())
    return draw(st.integers(0, sizes.dealing.num_ranks - 1)), sizes


@settings(deadline=None, max_examples=15)
@given(asked=_rank_and_sizes(), gap=st.integers(1, 9))
def test_gaps_between_tokens_of_a_tensor_move_its_places_only(asked, gap):
    rank, sizes = asked
    conversion = qkv_to_heads(sizes)
    ((token, batch, one),) = contiguous_strides(conversion.source.shapes)
    tight, gapped = (peer_sections(conversion, rank, ((step, batch, one),)) for step in (token, token + gap))

    def all_places(sections, side: str) -> list[int]:
        return [
            place
            for each in sections
            for peer in range(sizes.dealing.num_ranks)
            for place in places(
                each.section, getattr(each.section, side), getattr(each.section, f"{side}_start"), peer, each.first_peer
            ).tolist()
        ]

    tokens_apart = [local + local // token * gap for local in all_places(tight, "local")]
    expected = sorted(zip(all_places(tight, "wire"), tokens_apart, strict=True))
    assert sorted(zip(all_places(gapped, "wire"), all_places(gapped, "local"), strict=True)) == expected
