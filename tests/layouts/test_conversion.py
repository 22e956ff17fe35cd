"""Conversions: the integer plan against permutes and an exchange, and each end's sections against the plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paradyse_megatron.layouts.blocks import block_plan
from paradyse_megatron.layouts.conversion import Conversion, context_to_tokens, contiguous_to_zigzag, qkv_to_heads
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing
from paradyse_megatron.layouts.section import is_whole
from paradyse_megatron.layouts.zigzag import contiguous_positions, zigzag_positions
from tests.ranks import REPOSITORY

RANKS = (2, 3, 5, 8)


@st.composite
def attention_sizes(draw):
    """Any way to deal heads, key/value heads shared by ranks among them; odd sizes, b > 1."""
    num_ranks = draw(st.sampled_from(RANKS))
    shared = [groups for groups in range(1, num_ranks) if num_ranks % groups == 0]
    groups = draw(st.sampled_from([num_ranks, 2 * num_ranks, 3 * num_ranks, *shared]))
    heads = np.lcm(groups, num_ranks) * draw(st.integers(1, 3))
    dealing = HeadDealing(int(heads), groups, num_ranks)
    return AttentionSizes(dealing, draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(1, 3)))


def exchanged(sent: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    """`all_to_all_single`: what each rank gets, by source."""
    return [list(column) for column in zip(*sent, strict=True)]


def permuted_qkv(mixed: list[np.ndarray], sizes: AttentionSizes) -> list[list[np.ndarray]]:
    """Query, key and value of each rank, by permutes around the exchange."""
    dealing, d = sizes.dealing, sizes.head_dim
    copies, in_group = dealing.num_copies, sizes.heads_per_group
    sent = []
    for local in mixed:
        by_group = local.reshape(*local.shape[:2], dealing.num_groups, in_group + 2, d)
        queries = by_group[:, :, :, :-2].reshape(*local.shape[:2], dealing.num_groups, copies, -1, d)
        keys = np.repeat(by_group[:, :, :, None, -2:], copies, axis=3)
        dealt = np.concatenate((queries, keys), axis=4).reshape(*local.shape[:2], dealing.num_ranks, -1)
        sent.append(list(np.moveaxis(dealt, 2, 0)))
    results = []
    for received in exchanged(sent):
        rows = np.concatenate(received).reshape(-1, sizes.batch, dealing.own_groups, dealing.heads_per_own_group + 2, d)
        heads = (rows[:, :, :, :-2], rows[:, :, :, -2:-1], rows[:, :, :, -1:])
        results.append([part.reshape(*rows.shape[:2], -1, d) for part in heads])
    return results


def permuted_context(contexts: list[np.ndarray], sizes: AttentionSizes) -> list[list[np.ndarray]]:
    sent = [list(whole.reshape(sizes.dealing.num_ranks, sizes.num_tokens, sizes.batch, -1)) for whole in contexts]
    return [[np.concatenate(received, axis=-1)] for received in exchanged(sent)]


def numbered(conversion: Conversion, num_ranks: int) -> list[list[np.ndarray]]:
    """Tensors of all ranks in the source layout, no two elements alike."""
    count, ranks = 0, []
    for _ in range(num_ranks):
        tensors = []
        for shape in conversion.source.shapes:
            size = int(np.prod(shape))
            tensors.append(np.arange(count, count + size).reshape(shape))
            count += size
        ranks.append(tensors)
    return ranks


def flat(tensors: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([tensor.ravel() for tensor in tensors])


def replayed(plan, sources: list[list[np.ndarray]], sizes: list[int], buffered: bool) -> list[np.ndarray]:
    """The tensors of each rank after its blocks are copied, and added where several end in one place."""
    targets = [np.zeros(size, np.int64) for size in sizes]
    whole = [flat(tensors) for tensors in sources]
    if not buffered:
        for source, pairs in enumerate(plan.direct):
            for target, blocks in enumerate(pairs):
                for start, stop, length in blocks:
                    targets[target][stop : stop + length] += whole[source][start : start + length]
        return targets
    sent = []
    for source, blocks in enumerate(plan.packs):
        wire = np.full(plan.sent[source].sum(), -1)
        for start, stop, length in blocks:
            wire[stop : stop + length] = whole[source][start : start + length]
        assert (wire >= 0).all()
        sent.append(np.split(wire, np.cumsum(plan.sent[source])[:-1]))
    for target, (received, blocks) in enumerate(zip(exchanged(sent), plan.unpacks, strict=True)):
        wire = np.concatenate(received)
        for start, stop, length in blocks:
            targets[target][stop : stop + length] += wire[start : start + length]
    return targets


def sizes_of(layout, num_ranks: int) -> list[int]:
    return [sum(int(np.prod(shape)) for shape in layout.shapes)] * num_ranks


@pytest.mark.parametrize("buffered", [True, False])
@settings(deadline=None, max_examples=25)
@given(sizes=attention_sizes())
def test_the_plan_of_q_k_v_equals_permutes_and_back_adds_copies(buffered, sizes):
    conversion, num_ranks = qkv_to_heads(sizes), sizes.dealing.num_ranks
    plan = block_plan(conversion.source, conversion.target, num_ranks)
    mixed = numbered(conversion, num_ranks)
    found = replayed(plan, mixed, sizes_of(conversion.target, num_ranks), buffered)
    expected = permuted_qkv([tensors[0] for tensors in mixed], sizes)
    for mine, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, flat(wanted))
    back = replayed(plan.inverse(), [[mine] for mine in found], sizes_of(conversion.source, num_ranks), buffered)
    times = np.ones(sizes.heads_per_group + 2, np.int64)
    times[-2:] = sizes.dealing.num_copies
    for mine, (local,) in zip(back, mixed, strict=True):
        rows = local.reshape(-1, sizes.dealing.num_groups, sizes.heads_per_group + 2, sizes.head_dim)
        np.testing.assert_array_equal(mine, (rows * times[:, None]).ravel())


@settings(deadline=None, max_examples=25)
@given(sizes=attention_sizes())
def test_the_plan_of_the_context_equals_permutes(sizes):
    conversion, num_ranks = context_to_tokens(sizes), sizes.dealing.num_ranks
    plan = block_plan(conversion.target, conversion.source, num_ranks).inverse()
    contexts = numbered(conversion, num_ranks)
    found = replayed(plan, contexts, sizes_of(conversion.target, num_ranks), True)
    for mine, wanted in zip(found, permuted_context([c[0] for c in contexts], sizes), strict=True):
        np.testing.assert_array_equal(mine, flat(wanted))


@settings(deadline=None, max_examples=25)
@given(num_ranks=st.sampled_from(RANKS), chunk=st.integers(1, 4), row=st.integers(1, 3))
def test_the_plan_of_the_zigzag_order_brings_the_right_tokens(num_ranks, chunk, row):
    conversion = contiguous_to_zigzag(num_ranks, 1, chunk * row)
    plan = block_plan(conversion.source, conversion.target, num_ranks)
    found = replayed(plan, numbered(conversion, num_ranks), [2 * chunk * row] * num_ranks, True)
    length = 2 * chunk * num_ranks
    for rank, mine in enumerate(found):
        positions = zigzag_positions(rank, num_ranks, length)
        np.testing.assert_array_equal(mine, (positions[:, None] * row + np.arange(row)).ravel())
    back = replayed(plan.inverse(), [[mine] for mine in found], [2 * chunk * row] * num_ranks, True)
    for rank, mine in enumerate(back):
        np.testing.assert_array_equal(mine[::row] // row, contiguous_positions(rank, num_ranks, length))


def contiguous_strides(shapes) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))) for shape in shapes)


def pairs_of_sections(layout, rank: int) -> set[tuple[int, int]]:
    """(place in the rank's tensors, place in the wire) of every element, walked through axis by axis."""
    first = np.cumsum([0, *(int(np.prod(shape)) for shape in layout.shapes)])
    pairs: list[tuple[int, int]] = []
    for section in layout.sections(rank, contiguous_strides(layout.shapes)):
        local, wire = np.array([section.local_start + first[section.tensor]]), np.array([section.wire_start])
        for extent, local_stride, wire_stride in zip(section.extents, section.local, section.wire, strict=True):
            local = np.add.outer(local, np.arange(extent) * local_stride)
            wire = np.add.outer(wire, np.arange(extent) * wire_stride)
        width = np.arange(section.width)
        pairs += zip(
            np.add.outer(local, width).ravel().tolist(), np.add.outer(wire, width).ravel().tolist(), strict=True
        )
        assert section.num_elements == local.size * section.width
    assert len(pairs) == len(set(pairs))
    return set(pairs)


def pairs_of_blocks(blocks) -> set[tuple[int, int]]:
    return {(start + i, stop + i) for start, stop, length in blocks for i in range(length)}


def check_sections(by_tokens, other, num_ranks: int) -> None:
    plan = block_plan(by_tokens, other, num_ranks)
    for rank in range(num_ranks):
        assert pairs_of_sections(by_tokens, rank) == pairs_of_blocks(plan.packs[rank])
        assert pairs_of_sections(other, rank) == pairs_of_blocks(plan.unpacks[rank].inverse())
        for layout, sent in ((by_tokens, plan.sent[rank]), (other, plan.sent[:, rank])):
            assert [count * layout.block_elements for count in layout.blocks_per_peer(rank)] == sent.tolist()


@settings(deadline=None, max_examples=25)
@given(sizes=attention_sizes())
def test_sections_say_the_same_as_the_plan(sizes):
    qkv, context = qkv_to_heads(sizes), context_to_tokens(sizes)
    check_sections(qkv.source, qkv.target, sizes.dealing.num_ranks)
    check_sections(context.target, context.source, sizes.dealing.num_ranks)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5, 6, 8])
def test_sections_of_chunks_say_the_same_as_the_plan(num_ranks):
    for subgroup_size in [size for size in range(1, num_ranks + 1) if num_ranks % size == 0]:
        conversion = contiguous_to_zigzag(num_ranks, subgroup_size, 3)
        check_sections(conversion.source, conversion.target, num_ranks)


@settings(deadline=None, max_examples=25)
@given(sizes=attention_sizes())
def test_only_what_lies_as_it_travels_need_not_move(sizes):
    qkv, context = qkv_to_heads(sizes), context_to_tokens(sizes)

    def moves_nothing(layout):
        return is_whole(layout.sections(0, contiguous_strides(layout.shapes)))

    assert moves_nothing(context.source)
    assert moves_nothing(context.target) == (sizes.num_tokens * sizes.batch == 1)
    assert not moves_nothing(qkv.target)
    assert moves_nothing(qkv.source) <= (sizes.num_tokens * sizes.batch == 1)


def test_each_side_of_the_wire_is_read_once_and_written_once():
    """Llama-2-7B at P=8: the bytes are those of q, k and v, whatever their way."""
    sizes = AttentionSizes(HeadDealing(32, 32, 8), 128, 64, 1)
    conversion = qkv_to_heads(sizes)
    plan = block_plan(conversion.source, conversion.target, 8)
    once = 64 * 3 * 4096
    assert [plan.packs[0].num_elements, plan.unpacks[0].num_elements] == [once, once]
    assert sum(blocks.num_elements for blocks in plan.direct[0]) == once
    assert set(plan.packs[0].length.tolist()) == {once // 64 // 8}  # one piece a token and rank


def moved_bytes(conversion: Conversion) -> int:
    """Read and written on a rank by both of its sides, without the exchange; bf16."""
    source, target = conversion.source, conversion.target
    ends = [layout.sections(0, contiguous_strides(layout.shapes)) for layout in (source, target)]
    stays = [is_whole(ends[0]), target.is_view(0) or is_whole(ends[1])]
    moved = [sum(section.num_elements for section in end) for end, whole in zip(ends, stays, strict=True) if not whole]
    return 2 * 2 * sum(moved)


def test_the_floor_that_the_documentation_states_is_that_of_the_sections():
    """7B, P = 8, 32,768 tokens."""
    sizes = AttentionSizes(HeadDealing(32, 32, 8), 128, 4096, 1)
    qkv, context = qkv_to_heads(sizes), context_to_tokens(sizes)
    forward = moved_bytes(qkv) + moved_bytes(context)
    backward = moved_bytes(qkv.inverse) + moved_bytes(context.inverse)
    sent = 2 * 8 * (qkv.source.block_elements + context.source.block_elements)
    stated = (REPOSITORY / "docs" / "architecture.md").read_text()
    for number in (
        f"writes {forward / 1e6:.0f} MB a rank in forward and {backward / 1e6:.0f} MB in backward",
        f"is {forward / 3.35e6:.0f} µs and {backward / 3.35e6:.0f} µs; computed",
        f"reads {sent / 1e6:.0f} MB and writes as much",
        f"`symm` needs {2 * sent / 1e6:.0f} MB",
        f"instead of all of this: {4 * sent / 3.35e6:.0f} µs",
    ):
        assert number in stated, number
