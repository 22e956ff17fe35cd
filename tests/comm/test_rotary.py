"""Rotary embedding on the way to the wire: the numbers of Megatron's formula, the same bytes by every executor."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from megatron.core.models.common.embeddings.rope_utils import _apply_rotary_pos_emb_bshd

from paradyse_megatron.bench.gpu import direct
from paradyse_megatron.comm import cuda, host, permutes
from paradyse_megatron.comm.conversion import convert
from paradyse_megatron.comm.rotary import Rotation, rotated
from paradyse_megatron.layouts.conversion import context_to_tokens, qkv_to_heads
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing
from tests.comm.emulated import COMPILER, kernels_on_cpu
from tests.comm.rotations import angles_of, assert_rotates_alike, by_heads, expanded, rotation_of, rotations
from tests.comm.same_bytes import SUMMED, equal, random, scattered
from tests.comm.test_executors import WORKERS, built, kernels_for_ranks  # noqa: F401
from tests.layouts.test_conversion import attention_sizes
from tests.ranks import run_ranks

compiled = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
MAKES = [random, scattered, by_heads, expanded]


def megatrons(heads: torch.Tensor, angles: torch.Tensor, interleaved: bool) -> torch.Tensor:
    return _apply_rotary_pos_emb_bshd(heads, angles[:, None, None], rotary_interleaved=interleaved)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("num_rotated", [4, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_numbers_are_those_of_megatrons_formula(dtype, num_rotated, interleaved):
    """To the last bit; in half precision those of the formula in fp32, rounded once.

    Megatron's own in half precision rounds five times: cosine, sine, products, sum. Each by 2^-8 at most, of numbers no
    larger than the sum of both terms' sizes; and ours once more.
    """
    angles = angles_of(300, num_rotated)
    heads, grad = (random((300, 2, 3, 16), dtype) for _ in range(2))
    precise = torch.promote_types(dtype, torch.float32)
    found, back = (rotated(one, way, slice(None)) for one, way in _there_and_back(heads, grad, angles, interleaved))
    for exactly, kind in ((True, precise), (False, dtype)):
        whole = heads.to(kind, copy=True).requires_grad_()
        wanted = megatrons(whole, angles, interleaved)
        wanted.backward(grad.to(kind))
        for mine, other, start in ((found, wanted, heads), (back, whole.grad, grad)):
            if exactly or dtype == precise:
                assert torch.equal(mine, other.detach().to(dtype))
            else:
                sizes = start[..., :num_rotated].abs().double()
                most = 2**-8 * (sizes + rotation_partners(sizes, interleaved)) * 4
                assert ((mine - other.detach())[..., :num_rotated].abs() <= most).all()


def _there_and_back(heads, grad, angles, interleaved):
    rotation = Rotation(angles, slice(None), interleaved)
    return (heads, rotation), (grad, rotation.inverse())


def rotation_partners(numbers: torch.Tensor, interleaved: bool) -> torch.Tensor:
    return Rotation(numbers, slice(None), interleaved).partners(numbers)


@built
@settings(deadline=None, max_examples=40)
@given(sizes=attention_sizes(), how=rotations, dtype=st.sampled_from(SUMMED), make=st.sampled_from(MAKES))
@example(AttentionSizes(HeadDealing(16, 2, 8), 12, 6, 2), (4, False, True), torch.bfloat16, by_heads)
def test_host_rotates_alike(sizes, how, dtype, make):
    assert_rotates_alike(host, replace(sizes, head_dim=8 + sizes.head_dim), how, dtype, make)


@built
def test_host_rotates_large_tensors_in_threads(many_threads):
    assert_rotates_alike(
        host, AttentionSizes(HeadDealing(16, 8, 4), 128, 355, 2), (64, False, False), torch.bfloat16, random
    )


@pytest.fixture
def many_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@compiled
@settings(deadline=None, max_examples=40)
@given(sizes=attention_sizes(), how=rotations, dtype=st.sampled_from(SUMMED), make=st.sampled_from(MAKES))
def test_kernels_rotate_alike(sizes, how, dtype, make):
    with kernels_on_cpu():
        assert_rotates_alike(cuda, replace(sizes, head_dim=8 + sizes.head_dim), how, dtype, make)


@compiled
@pytest.mark.parametrize(("half", "head_dim"), [(64, 128), (32, 128), (16, 96), (5, 16), (4, 67)])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", SUMMED)
def test_kernels_do_so_by_wide_accesses_and_by_narrow_ones(half, head_dim, interleaved, dtype):
    with kernels_on_cpu() as kernels:
        for groups in (8, 2):
            sizes = AttentionSizes(HeadDealing(16, groups, 4), head_dim, 6, 2)
            assert_rotates_alike(cuda, sizes, (half, interleaved, True), dtype, random)
        assert kernels.launched >= {f"rotate_sections_{str(dtype).removeprefix('torch.')}", "copy_sections"}


@compiled
@settings(deadline=None, max_examples=25)
@given(sizes=attention_sizes(), how=rotations, dtype=st.sampled_from(SUMMED), make=st.sampled_from(MAKES))
@example(AttentionSizes(HeadDealing(15, 5, 5), 5, 3, 3), (4, True, False), torch.float64, scattered)
def test_direct_stores_rotate_alike(sizes, how, dtype, make):
    sizes = replace(sizes, head_dim=8 + sizes.head_dim)
    rotation, conversion = rotation_of(sizes, 2 * how[0], how[1]), qkv_to_heads(sizes)
    with kernels_on_cpu() as kernels:
        among = direct.workspaces(sizes.dealing.num_ranks, 1 << 20, torch.device("cpu"))
        for one, way in ((conversion, rotation), (conversion.inverse, rotation.inverse())):
            held = [[make(shape, dtype) for shape in one.source.shapes] for _ in among]
            found = direct.exchanged(one, held, among, way)
            for mine, wanted in zip(found, direct.permuted(one, held, way), strict=True):
                assert all(map(equal, mine, wanted))
        assert f"store_rotated_{str(dtype).removeprefix('torch.')}" in kernels.launched


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_rotating_on_the_way_is_converting_and_then_rotating(num_ranks, kernels_for_ranks):  # noqa: F811
    """Values and gradients, over a real group, with every executor, each rank with another one as well."""
    for found in run_ranks(f"{WORKERS}:rotated", num_ranks, kernels_for_ranks):
        assert len(found) >= 6 * len(kernels_for_ranks)
        assert all(found.values()), [case for case, right in found.items() if not right]


def test_what_cannot_be_rotated_is_refused_before_anything_is_sent():
    sizes = AttentionSizes(HeadDealing(4, 2, 2), 8, 3, 1)
    with pytest.raises(ValueError, match=r"shape \(6, 10\), but heads of size 8 want"):
        convert(qkv_to_heads(sizes), None, torch.zeros(1), rotation=rotation_of(sizes, 10, False))
    with pytest.raises(ValueError, match=r"this conversion moves HeadsContext"):
        convert(context_to_tokens(sizes), None, torch.zeros(1), rotation=rotation_of(sizes, 8, False))
    integers = torch.zeros(3, 1, 64, dtype=torch.int64)
    if COMPILER is not None:
        with kernels_on_cpu(), pytest.raises(ValueError, match="int64 are neither added up nor rotated"):
            cuda.pack([integers], qkv_to_heads(sizes).source, 0, rotation_of(sizes, 8, False))
    assert permutes.pack([integers], qkv_to_heads(sizes).source, 0).shape == (2, 96)
