"""Direct stores into peers' windows: the kernels' own source on the CPU, all ranks of a group in one process."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from paradyse_megatron.bench.gpu import direct
from paradyse_megatron.comm import symm, windows
from paradyse_megatron.comm.launch import stores
from paradyse_megatron.layouts.conversion import context_to_tokens, contiguous_to_zigzag, qkv_to_heads
from paradyse_megatron.layouts.direct import landing_of
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing
from tests.comm.emulated import COMPILER, kernels_on_cpu
from tests.comm.same_bytes import DTYPES, SUMMED, equal, random, scattered
from tests.layouts.test_conversion import attention_sizes

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
CPU = torch.device("cpu")
WINDOW_BYTES = 1 << 20
UNTOUCHED = 0xA5


@pytest.fixture(scope="module", autouse=True)
def kernels():
    """The `symm` executor on CPU tensors."""
    with kernels_on_cpu() as emulated:
        yield emulated
    assert emulated.launched >= {"store_sections", "meet_peers", "sum_sections_bfloat16"}


def conversions(sizes: AttentionSizes, summed: bool = True):
    num_ranks = sizes.dealing.num_ranks
    zigzag = contiguous_to_zigzag(num_ranks, 1, sizes.num_tokens * sizes.batch)
    for conversion in (qkv_to_heads(sizes), context_to_tokens(sizes), zigzag):
        yield conversion
        if summed or not landing_of(conversion.source).is_wire:
            yield conversion.inverse


def assert_same_as_through_a_wire(conversion, among, dtype, make) -> None:
    """Again and again in the same workspaces."""
    held = [[make(shape, dtype) for shape in conversion.source.shapes] for _ in among]
    found = direct.exchanged(conversion, held, among)
    for mine, wanted in zip(found, direct.permuted(conversion, held), strict=True):
        assert len(mine) == len(wanted) and all(map(equal, mine, wanted))


@settings(deadline=None, max_examples=25)
@given(sizes=attention_sizes(), dtype=st.sampled_from(DTYPES), make=st.sampled_from([random, scattered]))
@example(sizes=AttentionSizes(HeadDealing(16, 2, 8), 3, 5, 2), dtype=torch.bfloat16, make=scattered)
@example(sizes=AttentionSizes(HeadDealing(15, 5, 5), 5, 3, 3), dtype=torch.float64, make=scattered)
def test_every_byte_is_where_a_wire_and_permutes_bring_it(sizes, dtype, make):
    among = direct.workspaces(sizes.dealing.num_ranks, WINDOW_BYTES, CPU)
    for conversion in conversions(sizes, dtype in SUMMED):
        assert_same_as_through_a_wire(conversion, among, dtype, make)


@pytest.mark.parametrize(("heads", "groups", "head_dim"), [(16, 8, 128), (16, 2, 128), (24, 8, 67)])
def test_they_are_where_threads_loop(heads, groups, head_dim):
    among = direct.workspaces(8, 8 << 20, CPU)
    for conversion in conversions(AttentionSizes(HeadDealing(heads, groups, 8), head_dim, 13, 2)):
        assert_same_as_through_a_wire(conversion, among, torch.bfloat16, scattered)


@settings(deadline=None, max_examples=10)
@given(sizes=attention_sizes(), dtype=st.sampled_from([torch.int8, torch.bfloat16, torch.float32]))
@example(sizes=AttentionSizes(HeadDealing(6, 3, 3), 5, 3, 1), dtype=torch.int8)
def test_nothing_else_in_a_workspace_is_written(sizes, dtype):
    """But the signals: not the gaps between tensors, the other window, nor what is behind a window's tensors."""
    num_ranks = sizes.dealing.num_ranks
    for conversion in conversions(sizes):
        landing = landing_of(conversion.target)
        if landing.is_wire and dtype not in SUMMED:
            continue
        window_bytes = -(-landing.num_elements * dtype.itemsize // 256) * 256 + 256
        among = direct.workspaces(num_ranks, window_bytes, CPU)
        held = [[random(shape, dtype) for shape in conversion.source.shapes] for _ in among]
        pad = windows.start_of_window(num_ranks, window_bytes, 0)
        for one in among:
            one.memory[pad:] = UNTOUCHED
        direct.exchanged(conversion, held, among)
        for one in among:
            window = one.window(landing.num_elements, dtype)
            for start, shape in zip(landing.starts, map(torch.Size, landing.shapes), strict=True):
                window[start : start + shape.numel()].view(torch.uint8).fill_(UNTOUCHED)
            assert (one.memory[pad:] == UNTOUCHED).all()
            assert one.memory[:pad].view(torch.int64)[:num_ranks].tolist() == [1] * num_ranks


def test_more_sections_than_a_launch_takes_are_several_launches():
    section = [0, 3, 0, 0, 1, 1, 2, 1, 1, 1, *[0, 0, 3, 0, 0, 0] * 2]
    found = list(stores(section * 9, list(range(9)), [64], 0, 9, 1024, 1, 2, "bfloat16", 1320))
    assert [launch.sections for launch in found] == [4, 4, 1]
    assert len({len(launch.argument) for launch in found}) == 1


def test_a_peer_that_never_comes_ends_the_wait_with_an_error():
    among = direct.workspaces(2, WINDOW_BYTES, CPU)
    among[0].limit = timedelta(milliseconds=50)
    conversion = contiguous_to_zigzag(2, 1, 3)
    with pytest.raises(RuntimeError, match="meet_peers gave up"):
        symm.send(conversion, [torch.zeros(2, 3)], among[0])


def test_what_was_taken_stays_when_windows_are_used_again():
    """Autograd keeps tensors for longer than a window lives."""
    conversion = qkv_to_heads(AttentionSizes(HeadDealing(6, 3, 3), 4, 3, 1))
    among = direct.workspaces(3, WINDOW_BYTES, CPU)
    held = [[random(shape, torch.float32) for shape in conversion.source.shapes] for _ in among]
    first = direct.exchanged(conversion, held, among)
    for _ in range(3):
        direct.exchanged(conversion, [[tensor + 1 for tensor in tensors] for tensors in held], among)
    for mine, wanted in zip(first, direct.permuted(conversion, held), strict=True):
        assert all(map(equal, mine, wanted))


def test_a_trace_on_fake_tensors_goes_through_the_wire(unmapped_cuda):
    """As there is no peer to store to."""
    conversion = qkv_to_heads(AttentionSizes(HeadDealing(8, 4, 2), 16, 5, 2))
    with FakeTensorMode():
        mixed = torch.empty(conversion.source.shapes[0], dtype=torch.bfloat16, device="cuda")
        assert not symm._is_reached(mixed)
        assert symm.pack([mixed], conversion.source, 0).shape == (2, conversion.source.block_elements)
