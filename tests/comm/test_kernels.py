"""The GPU kernels' own source, every thread run on the CPU: the same bytes as the reference, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from paradyse_megatron.comm import cuda
from paradyse_megatron.comm.launch import WIRE_KERNELS, launches
from paradyse_megatron.layouts.conversion import contiguous_to_zigzag, qkv_to_heads
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing
from paradyse_megatron.layouts.section import Axes, Section, table
from tests.comm.emulated import COMPILER, FOLDER, build_library, kernels_on_cpu, kernels_with
from tests.comm.hard_places import assert_moves_at_odd_addresses, assert_moves_far_apart
from tests.comm.same_bytes import (
    DTYPES,
    SUMMED,
    all_layouts,
    assert_copies_any_strides,
    assert_same_bytes,
    assert_same_sums,
    equal,
    random,
    scattered,
)
from tests.layouts.test_conversion import attention_sizes
from tests.ranks import REPOSITORY

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


@pytest.fixture(scope="module", autouse=True)
def kernels(request):
    """The `cuda` executor on CPU tensors; all tests of this file together launch every kernel."""
    with kernels_on_cpu() as emulated:
        yield emulated
    is_whole = not request.config.option.keyword and not any("::" in asked for asked in request.config.args)
    unrotated = {kernel for kernel in WIRE_KERNELS if "rotate" not in kernel}  # see test_rotary.py
    assert not is_whole or emulated.launched == unrotated


@settings(deadline=None, max_examples=60)
@given(sizes=attention_sizes(), dtype=st.sampled_from(DTYPES), make=st.sampled_from([random, scattered]))
def test_they_pack_and_unpack_the_same_bytes_as_torch(sizes, dtype, make):
    for layout, rank in all_layouts(sizes):
        assert_same_bytes(cuda, layout, rank, dtype, make)


@pytest.mark.parametrize(("heads", "groups", "head_dim"), [(16, 8, 128), (16, 2, 128), (24, 8, 67), (16, 2, 12)])
def test_they_do_so_where_threads_loop(kernels, heads, groups, head_dim):
    before = kernels.launched.copy()
    kernels.launched.clear()
    sizes = AttentionSizes(HeadDealing(heads, groups, 8), head_dim, 37, 2)
    for layout, rank in all_layouts(sizes):
        assert_same_bytes(cuda, layout, rank, torch.bfloat16, scattered)
    assert kernels.launched == {"copy_sections"} | ({"sum_sections_bfloat16"} if groups < 8 else set())
    kernels.launched |= before


@pytest.mark.parametrize("dtype", SUMMED)
@settings(deadline=None, max_examples=3)
@given(seed=st.integers(0, 2**31), head_dim=st.sampled_from([16, 13]))
@example(seed=0, head_dim=16)
def test_copies_are_summed_alike_to_the_last_bit(dtype, seed, head_dim):
    """In order. An odd head size leaves no wide accesses."""
    assert_same_sums(cuda, dtype, head_dim, seed)


@settings(deadline=None, max_examples=150)
@given(
    width=st.integers(1, 700),
    num_pieces=st.integers(1, 5),
    gaps=st.tuples(st.integers(0, 17), st.integers(0, 17)),
    starts=st.tuples(st.integers(0, 17), st.integers(0, 17)),
    to_wire=st.booleans(),
    dtype=st.sampled_from([torch.int8, torch.bfloat16, torch.float32, torch.int64, torch.complex128]),
)
def test_nothing_is_written_beside_the_pieces_at_whatever_alignment(width, num_pieces, gaps, starts, to_wire, dtype):
    steps = [width + gap for gap in gaps]
    extents = Axes(1, 1, num_pieces, 1, 1, 1)
    local, wire = (Axes(0, 0, step, 0, 0, 0) for step in steps)
    section = Section(0, width, extents, local, wire, *starts)
    sides = [random((start + num_pieces * step + 17,), dtype) for start, step in zip(starts, steps, strict=True)]
    source, target = sides if to_wire else sides[::-1]
    pieces = [
        side.clone().as_strided((num_pieces, width), (step, 1), start)
        for side, step, start in zip(sides, steps, starts, strict=True)
    ]
    expected = target.clone()
    views = pieces if to_wire else pieces[::-1]
    expected.as_strided(views[1].shape, views[1].stride(), views[1].storage_offset()).copy_(views[0])
    cuda._move(table([section]), [sides[0]], sides[1], to_wire)
    assert equal(target, expected) and equal(source, views[0]._base)


def test_places_beyond_32_bits_and_at_odd_addresses():
    assert_moves_far_apart()
    assert_moves_at_odd_addresses()


FAULTS = {
    "vectors of 16 bytes everywhere": ("return bits & -bits;", "return bits ? 16 : 16;"),
    "vectors of 8 bytes everywhere": ("return bits & -bits;", "return (bits & -bits) < 8 ? 8 : bits & -bits;"),
    "32 bits for places in tensors": ("place.local * size", "static_cast<int>(place.local * size)"),
    "32 bits for places in the wire": ("place.wire * size", "static_cast<int>(place.wire * size)"),
}


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_each_fault_is_seen(fault, tmp_path):
    """In kernels that were compiled with it; a GPU would end at the first, and the processor may."""
    build_library(tmp_path, kernels_with(fault and FAULTS[fault], "tiles.h", tmp_path))
    command = [sys.executable, "-m", "tests.comm.hard_places"]
    done = subprocess.run(command, cwd=REPOSITORY, env=os.environ | {FOLDER: str(tmp_path)}, capture_output=True)
    assert (done.returncode == 0) == (fault is None), done.stderr


def test_any_strided_copy():
    assert_copies_any_strides(cuda)


class Operators(TorchDispatchMode):
    """Names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_trace_on_fake_tensors_sees_shapes_and_kernels(unmapped_cuda):
    conversion = qkv_to_heads(AttentionSizes(HeadDealing(8, 4, 2), 16, 5, 2))
    with FakeTensorMode(), Operators() as operators:
        mixed = torch.empty(conversion.source.shapes[0], dtype=torch.bfloat16, device="cuda")
        wire = cuda.pack([mixed], conversion.source, 0)
        assert wire.shape == (2, conversion.source.block_elements) and wire.device.type == "cuda"
        outputs = cuda.unpack(wire, conversion.target, 0)
    assert tuple(tuple(output.shape) for output in outputs) == conversion.target.shapes
    names = [name for name in operators.names if name.startswith("paradyse")]
    assert names == ["paradyse.to_wire.default", "paradyse.from_wire.default"]


def test_integers_are_not_summed_and_empty_tensors_need_no_launch():
    layout = qkv_to_heads(AttentionSizes(HeadDealing(8, 1, 8), 4, 2, 1)).source
    with pytest.raises(ValueError, match=r"Numbers of type int64 are neither added up nor rotated\."):
        cuda.unpack(torch.zeros(8, layout.block_elements, dtype=torch.int64), layout, 0)
    section = Section(0, 3, Axes(1, 1, 0, 1, 1, 1), Axes(*[0] * 6), Axes(*[0] * 6))
    integers = torch.frombuffer(bytearray(table([section])), dtype=torch.int64).tolist()
    assert not list(launches(integers, [0], 0, True, 2, "bfloat16", 8))


def test_large_launches_are_bounded_and_small_ones_small():
    chunks = contiguous_to_zigzag(2, 1, 2**31 + 1).source
    integers = torch.frombuffer(bytearray(table(chunks.sections(1, ((2**31 + 1, 1),)))), dtype=torch.int64).tolist()
    (launch,) = launches(integers, [0], 0, True, 1, "int8", 1320)
    assert (launch.kernel, launch.blocks, launch.sections) == ("copy_sections", 1320, 1)
    tiny = torch.frombuffer(
        bytearray(table([Section(0, 3, Axes(*[1] * 6), Axes(*[0] * 6), Axes(*[0] * 6))])), dtype=torch.int64
    )
    assert [launch.blocks for launch in launches(tiny.tolist(), [0], 0, True, 1, "int8", 1320)] == [1]
