"""Executors: the same bytes as the reference and as the integer plan, on simulated ranks and over a real group."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paradyse_megatron.comm import cuda, executors, host, permutes
from paradyse_megatron.layouts.blocks import block_plan
from paradyse_megatron.layouts.conversion import context_to_tokens, qkv_to_heads
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing
from tests.comm.emulated import COMPILER, FOLDER, folder
from tests.comm.same_bytes import (
    DTYPES,
    SUMMED,
    all_layouts,
    assert_copies_any_strides,
    assert_same_bytes,
    assert_same_sums,
    random,
    scattered,
)
from tests.layouts.test_conversion import attention_sizes
from tests.ranks import run_ranks

WORKERS = "tests.comm.conversion_workers"
built = pytest.mark.skipif(isinstance(host.extension(), str), reason="the host extension is not built")


@built
@settings(deadline=None, max_examples=25)
@given(sizes=attention_sizes(), dtype=st.sampled_from(DTYPES), make=st.sampled_from([random, scattered]))
def test_host_packs_and_unpacks_the_same_bytes_as_torch(sizes, dtype, make):
    for layout, rank in all_layouts(sizes):
        assert_same_bytes(host, layout, rank, dtype, make)


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


@built
@pytest.mark.parametrize("dtype", SUMMED)
@settings(deadline=None, max_examples=4)
@given(seed=st.integers(0, 2**31))
@example(seed=0)
def test_copies_are_summed_alike_to_the_last_bit(dtype, seed):
    assert_same_sums(host, dtype, 16, seed)


@built
@pytest.mark.parametrize("num_threads", [1, 2])
def test_large_conversions_with_streaming_threads_and_huge_pages(num_threads):
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        for groups, head_dim in ((8, 128), (2, 128), (8, 67)):
            sizes = AttentionSizes(HeadDealing(16, groups, 4), head_dim, 355, 2)
            for layout, rank in all_layouts(sizes):
                assert_same_bytes(host, layout, rank, torch.bfloat16, scattered)
    finally:
        torch.set_num_threads(before)


@built
def test_any_strided_copy():
    assert_copies_any_strides(host)


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
    with pytest.raises(ValueError, match=f"--paradyse-a2a symm cannot be used: {why}. Use torch or auto"):
        executors.choose("symm", on_cpu=False)
    with pytest.raises(ValueError, match="symm cannot be used: it converts tensors on a GPU, and training runs on the"):
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


@pytest.fixture(scope="module")
def kernels_for_ranks():
    """The GPU kernels' own source, built once for all ranks; names of the executors that run here."""
    names = ["torch", "mixed", "host"] if not isinstance(host.extension(), str) else ["torch"]
    with pytest.MonkeyPatch.context() as patch:
        if COMPILER is not None:
            patch.setenv(FOLDER, str(folder()))
            names += ["cuda", "symm"]
        yield names


@pytest.mark.parametrize("num_ranks", [3, 4])
def test_a_real_exchange_equals_the_plan_forward_and_backward_with_every_executor(num_ranks, kernels_for_ranks):
    """Each rank with another executor as well: what travels is the same."""
    by_rank = run_ranks(f"{WORKERS}:exchanged", num_ranks, kernels_for_ranks)
    for found in by_rank:
        assert len(found) >= 5 * len(kernels_for_ranks)
        assert all(found.values()), [case for case, right in found.items() if not right]


EXECUTORS = ("torch", "host", "cuda", "symm")


@pytest.mark.parametrize(("name", "share_of_late", "most_ms"), [("host", 0.3, 5.0), ("symm", 0.05, 50.0)])
def test_delayed_ranks_never_corrupt_a_byte(name, share_of_late, most_ms, kernels_for_ranks):
    if name not in kernels_for_ranks:
        pytest.skip("it is not built")
    found = run_ranks(f"{WORKERS}:delayed", 3, name, 1000, share_of_late, most_ms, timeout_seconds=240)
    assert found == [1000] * 3


@pytest.mark.parametrize("name", EXECUTORS)
def test_memory_stays_flat_over_three_hundred_lengths(name, kernels_for_ranks):
    """After 20 lengths and after 300, in random order: what 280 more tables or windows would leave is 10 MiB and up."""
    if name not in kernels_for_ranks:
        pytest.skip("it is not built")
    for after_few, after_all in run_ranks(f"{WORKERS}:resident_bytes", 2, name, 300):
        assert after_all - after_few < 4 << 20


def test_one_workspace_grows_with_the_lengths_and_lets_go_of_what_it_was(kernels_for_ranks):
    """30 ever longer lengths, up to 3.6 MB: windows of 1 MiB first, of half as much again each time they grow."""
    if "symm" not in kernels_for_ranks:
        pytest.skip("it is not built")
    for found in run_ranks(f"{WORKERS}:windows_over_lengths", 2, 30, 10):
        assert (found["right"], found["alive"]) == (30, 1)
        assert [size >> 20 for size in found["window_bytes"]] == [1, 2, 3, 5]


def test_there_is_one_workspace_for_each_set_of_ranks(kernels_for_ranks):
    """All four, and this rank's pair."""
    if "symm" not in kernels_for_ranks:
        pytest.skip("it is not built")
    assert run_ranks(f"{WORKERS}:sets_of_ranks", 4, 3) == [2] * 4


def test_where_memory_is_not_shared_all_ranks_go_through_a_collective_and_say_so_once(kernels_for_ranks):
    if "symm" not in kernels_for_ranks:
        pytest.skip("it is not built")
    for told, right, num_cases in run_ranks(f"{WORKERS}:unreachable", 3):
        assert right and num_cases >= 5
        (message,) = told
        assert message.endswith("go through a collective: rank 1 cannot share memory (OSError: no such memory)")
