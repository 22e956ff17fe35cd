"""Executors: the same bytes as the reference and as the integer plan, on simulated ranks and over a real group."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paradyse_megatron.comm import cuda, executors, host, permutes
from paradyse_megatron.layouts.blocks import block_plan
from paradyse_megatron.layouts.conversion import context_to_tokens, contiguous_to_zigzag, qkv_to_heads
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing
from tests.layouts.test_conversion import attention_sizes
from tests.ranks import run_ranks

WORKERS = "tests.comm.conversion_workers"
built = pytest.mark.skipif(isinstance(host.extension(), str), reason="the host extension is not built")
DTYPES = [torch.int8, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.complex64]
SUMMED = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def random(shape, dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float64).to(dtype)
    return torch.randint(-100, 100, shape).to(dtype)


def scattered(shape, dtype) -> torch.Tensor:
    """With gaps and batch before tokens in memory, as attention libraries return it."""
    order = (1, 0, *range(2, len(shape)))
    roomy = random([size + (axis > 0) for axis, size in enumerate(np.array(shape)[list(order)])], dtype)
    return roomy[tuple(slice(0, shape[axis]) for axis in order)].permute(order)


def equal(one, other) -> bool:
    """Bit for bit, so that zeros have signs and what is not a number equals itself."""
    return (one.dtype, one.shape) == (other.dtype, other.shape) and torch.equal(_bits(one), _bits(other))


def _bits(tensor):
    return tensor.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def all_layouts(sizes: AttentionSizes):
    """(layout, rank) of every end of every conversion."""
    num_ranks = sizes.dealing.num_ranks
    for conversion in (qkv_to_heads(sizes), context_to_tokens(sizes)):
        yield from ((layout, 0) for layout in (conversion.source, conversion.target))
    for rank in range(num_ranks):
        chunks = contiguous_to_zigzag(num_ranks, 1, sizes.num_tokens * sizes.batch)
        yield from ((layout, rank) for layout in (chunks.source, chunks.target))


@built
@settings(deadline=None, max_examples=25)
@given(sizes=attention_sizes(), dtype=st.sampled_from(DTYPES), make=st.sampled_from([random, scattered]))
def test_host_packs_and_unpacks_the_same_bytes_as_torch(sizes, dtype, make):
    for layout, rank in all_layouts(sizes):
        tensors = [make(shape, dtype) for shape in layout.shapes]
        wire = permutes.pack(tensors, layout, rank)
        assert equal(host.pack(tensors, layout, rank), wire)
        if dtype in SUMMED or not any(s.sums_copies for s in layout.sections(rank, ((0,) * 4,) * 3)):
            wire = random(wire.shape, dtype)
            for mine, wanted in zip(host.unpack(wire, layout, rank), permutes.unpack(wire, layout, rank), strict=True):
                assert equal(mine, wanted)


@built
@settings(deadline=None, max_examples=15)
@given(sizes=attention_sizes())
def test_host_moves_what_the_plan_says(sizes):
    """Elements carry their own places, so this holds the header's arithmetic against the integers."""
    for conversion, source_has_all in ((qkv_to_heads(sizes), True), (context_to_tokens(sizes), False)):
        ends = (conversion.source, conversion.target)
        by_tokens, other = ends if source_has_all else ends[::-1]
        plan = block_plan(by_tokens, other, sizes.dealing.num_ranks)
        for rank in range(sizes.dealing.num_ranks):
            for layout, blocks in ((by_tokens, plan.packs[rank]), (other, plan.unpacks[rank].inverse())):
                numbers = torch.arange(sum(int(np.prod(shape)) for shape in layout.shapes))
                parts = numbers.split([int(np.prod(shape)) for shape in layout.shapes])
                tensors = [part.view(shape) for part, shape in zip(parts, layout.shapes, strict=True)]
                found = host.pack(tensors, layout, rank).flatten().numpy()
                for start, stop, length in blocks:
                    np.testing.assert_array_equal(found[stop : stop + length], np.arange(start, start + length))
                assert blocks.num_elements == found.size


HARD = [0.0, -0.0, 1.0, -1.0, 1e-8, 6e-8, 6.1e-5, 65504.0, -65504.0, 1e30, float("inf"), -float("inf"), float("nan")]


@built
@pytest.mark.parametrize("dtype", SUMMED)
@settings(deadline=None, max_examples=4)
@given(seed=st.integers(0, 2**31))
@example(seed=0)
def test_copies_are_summed_alike_to_the_last_bit(dtype, seed):
    """Subnormal, overflowing and other hard numbers among them, and every pattern of 16 bits."""
    layout = qkv_to_heads(AttentionSizes(HeadDealing(8, 1, 8), 16, 16, 2)).source
    generator = torch.Generator().manual_seed(seed)
    wire = torch.randint(-(2**15), 2**15, (8, layout.block_elements * dtype.itemsize // 2), generator=generator)
    wire = wire.to(torch.int16).view(dtype)
    hard = torch.tensor(HARD, dtype=torch.float64).to(dtype)
    places = torch.randint(len(hard), wire.shape, generator=generator)
    wire = torch.where(torch.rand(wire.shape, generator=generator) < 0.5, hard[places], wire)
    (mine,), (wanted,) = host.unpack(wire, layout, 0), permutes.unpack(wire, layout, 0)
    assert torch.equal(mine.isnan(), wanted.isnan())
    assert equal(mine.nan_to_num(7.0), wanted.nan_to_num(7.0))
    assert 0 < mine.isnan().sum() < mine.numel()


@built
@pytest.mark.parametrize("num_threads", [1, 2])
def test_large_conversions_with_streaming_threads_and_huge_pages(num_threads):
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        for groups, head_dim in ((8, 128), (2, 128), (8, 67)):
            sizes = AttentionSizes(HeadDealing(16, groups, 4), head_dim, 355, 2)
            for layout, rank in all_layouts(sizes):
                tensors = [scattered(shape, torch.bfloat16) for shape in layout.shapes]
                wire = permutes.pack(tensors, layout, rank)
                assert equal(host.pack(tensors, layout, rank), wire)
                for pair in zip(host.unpack(wire, layout, rank), permutes.unpack(wire, layout, rank), strict=True):
                    assert equal(*pair)
    finally:
        torch.set_num_threads(before)


@built
def test_any_strided_copy():
    source = torch.randn(3, 4, 5, 6, 7)
    spread = source[:1].expand(9, -1, -1, -1, -1)
    for view in (source, source.movedim(0, 2), source[:, 1:3], source.flip(0), source[..., ::2], spread):
        for dtype in (torch.float32, torch.float64):
            target = torch.zeros(view.shape, dtype=dtype)
            host.copy_(target, view)
            assert torch.equal(target, view.to(dtype))


def test_choices_and_refusals(monkeypatch, caplog):
    monkeypatch.setattr(executors, "_current", None)
    monkeypatch.setattr(cuda, "unavailable_reason", lambda: "no kernel")
    executors.choose("torch")
    assert executors.current() is permutes
    executors.choose("auto", on_cpu=False)
    assert executors.current() is permutes
    why = cuda.unavailable_reason()
    assert [record.message for record in caplog.records] == [f"layout conversions are executed by torch: {why}"]
    caplog.clear()
    with pytest.raises(ValueError, match=f"--paradyse-a2a cuda cannot be used: {why}. Use torch or auto"):
        executors.choose("cuda", on_cpu=False)
    with pytest.raises(ValueError, match="on a GPU, and training runs on the CPU"):
        executors.choose("cuda")
    with pytest.raises(ValueError, match="--paradyse-a2a symm cannot be used: it is not available in this version"):
        executors.choose("symm")
    with pytest.raises(ValueError, match="there is a GPU. Use torch or auto"):
        executors.choose("host", on_cpu=False)
    monkeypatch.setattr(host, "extension", lambda: "no compiler")
    monkeypatch.setattr(executors, "_current", None)
    with caplog.at_level("INFO"):
        assert [executors.current() for _ in range(3)] == [permutes] * 3
    assert [record.message for record in caplog.records] == ["layout conversions are executed by torch: no compiler"]
    with pytest.raises(ValueError, match="host cannot be used: no compiler"):
        executors.choose("host")


@pytest.mark.parametrize("num_ranks", [3, 4])
def test_a_real_exchange_equals_the_plan_forward_and_backward_with_either_executor(num_ranks):
    """Each rank with another executor as well: what travels is the same."""
    names = ["torch", "mixed", "host"] if not isinstance(host.extension(), str) else ["torch"]
    by_rank = run_ranks(f"{WORKERS}:exchanged", num_ranks, names)
    for found in by_rank:
        assert len(found) >= 5 * len(names)
        assert all(found.values()), [case for case, right in found.items() if not right]


@built
def test_delayed_ranks_never_corrupt_a_byte():
    assert run_ranks(f"{WORKERS}:delayed", 3, 1000, 5.0, timeout_seconds=120) == [1000] * 3


@built
def test_memory_stays_flat_over_three_hundred_lengths():
    """After 20 lengths and after 300, in random order: what 280 more tables or windows would leave is 10 MiB and up."""
    for after_few, after_all in run_ranks(f"{WORKERS}:resident_bytes", 2, 300):
        assert after_all - after_few < 8 << 20
