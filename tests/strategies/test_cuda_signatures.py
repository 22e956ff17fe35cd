"""Calls of CUDA's flash attention, on fake CUDA tensors: no GPU, no driver, no numbers.

Fake tensors answer with shapes and dtypes as CUDA's operators do. They do not know what the kernels take for granted
about memory; that is checked here, as read in pytorch's `flash_api.cpp`: the log-sum-exp of all rows in one contiguous
piece, and neighbouring elements of a head's vector next to each other, at multiples of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from paradyse_megatron.strategies.attention.core import Block, attend, attend_backward
from paradyse_megatron.strategies.attention.merge import accumulator_dtype, merge_block_
from paradyse_megatron.strategies.attention.ring import Ring, _block_gradients
from paradyse_megatron.strategies.attention.ulysses import causal_attention

pytestmark = pytest.mark.usefixtures("unmapped_cuda")

HALF = [torch.bfloat16, torch.float16]
HEADS = [(8, 8), (8, 2), (6, 1)]
BATCH, TOKENS, HEAD_DIM = 2, 12, 64
_aten = torch.ops.aten
FORWARD = _aten._scaled_dot_product_flash_attention.default
BACKWARD = _aten._scaled_dot_product_flash_attention_backward.default


class Kernels(TorchDispatchMode):
    """Counts the calls, and checks what the kernels take for granted."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {FORWARD: 0, BACKWARD: 0}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.counts:
            self.counts[func] += 1
            vectors = args[:3] if func is FORWARD else args[:5]
            assert all(vector.stride(-1) == 1 and vector.storage_offset() % 8 == 0 for vector in vectors)
            assert all(step % 8 == 0 for vector in vectors for step in vector.stride()[:-1])
        if func is BACKWARD:
            grad, query, key, value, output, log_sum_exp = args[:6]
            assert grad.shape == output.shape == query.shape and key.shape == value.shape
            assert log_sum_exp.shape == query.shape[:3] and log_sum_exp.dtype == torch.float32
            assert log_sum_exp.is_contiguous()
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Peer:
    """A rank of a group, as far as `Ring` asks."""

    place: int
    num_ranks: int

    def rank(self) -> int:
        """Its place."""
        return self.place

    def size(self) -> int:
        """Of the group."""
        return self.num_ranks


@pytest.fixture
def kernels():
    with FakeTensorMode(allow_non_fake_inputs=True), Kernels() as counted:
        yield counted


def _inputs(dtype: torch.dtype, heads: int, groups: int) -> tuple[Tensor, Tensor]:
    """A query [b, a, t, d] cut out of [t, b, (a + 2g) d] and a block [2, b, g, t, d], as `zigzag_ring` has them."""
    mixed = torch.empty(TOKENS, BATCH, heads + 2 * groups, HEAD_DIM, dtype=dtype, device="cuda")
    block = torch.stack((mixed[:, :, heads : heads + groups], mixed[:, :, heads + groups :])).permute(0, 2, 3, 1, 4)
    return mixed[:, :, :heads].permute(1, 2, 0, 3), block


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(("heads", "groups"), HEADS)
@pytest.mark.parametrize("num_queries", [TOKENS, TOKENS // 2])
def test_one_block_forward_and_backward(kernels, dtype, heads, groups, num_queries):
    query, (key, value) = _inputs(dtype, heads, groups)
    query = query[:, :, TOKENS - num_queries :]
    block = attend(query, key, value, 0.125, causal=num_queries == TOKENS)
    assert block.output.shape == query.shape and block.output.dtype == dtype
    assert block.log_sum_exp.shape == query.shape[:3] and block.log_sum_exp.dtype == torch.float32
    assert block.output.device.type == block.log_sum_exp.device.type == "cuda"
    for whole in (block, Block(block.output, block.log_sum_exp)):  # with the kernel's own state, and without
        grads = attend_backward(torch.empty_like(query), query, key, value, whole, 0.125, causal=num_queries == TOKENS)
        assert [grad.shape for grad in grads] == [query.shape, key.shape, value.shape]
        assert {grad.dtype for grad in grads} == {dtype}
    assert list(kernels.counts.values()) == [1, 2]


@pytest.mark.parametrize(("heads", "groups"), HEADS)
def test_a_ring_walk_merges_and_differentiates_every_block(kernels, heads, groups):
    for rank in range(3):
        ring = Ring(Peer(rank, 3), 0.125)
        query, block = _inputs(torch.bfloat16, heads, groups)
        total = torch.zeros(query.shape, dtype=accumulator_dtype(query.dtype), device="cuda")
        log_sum_exp = torch.zeros(query.shape[:3], device="cuda")
        for step in range(3):
            rows, keys = ring.visible(step, TOKENS)
            key, value = block[:, :, :, keys].unbind()
            part = attend(query[:, :, rows], key, value, 0.125, causal=step == 0)
            merge_block_(total[:, :, rows], log_sum_exp[:, :, rows], part.output, part.log_sum_exp)
        whole = Block(total.to(query.dtype), log_sum_exp)
        for step in range(3):
            query_grad, block_grad = _block_gradients(torch.empty_like(query), query, block, whole, ring, step)
            assert query_grad.dtype == block_grad.dtype == torch.float32
            assert query_grad.shape == query.shape and block_grad.shape == block.shape
    assert list(kernels.counts.values()) == [9, 9]


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
@pytest.mark.parametrize(("heads", "groups"), HEADS)
def test_attention_of_whole_sequences_keeps_their_shape(kernels, dtype, heads, groups):
    query = torch.empty(TOKENS, BATCH, heads, HEAD_DIM, dtype=dtype, device="cuda")
    key, value = torch.empty(2, TOKENS, BATCH, groups, HEAD_DIM, dtype=dtype, device="cuda").unbind()
    output = causal_attention(query, key, value, 0.125)
    assert output.shape == (TOKENS, BATCH, heads, HEAD_DIM)
    assert output.dtype == dtype and output.device.type == "cuda"


@pytest.mark.parametrize(("dtype", "head_dim"), [(torch.float32, 64), (torch.bfloat16, 260), (torch.bfloat16, 12)])
def test_what_the_kernels_do_not_take_goes_through_the_plain_formula(kernels, dtype, head_dim):
    query = torch.empty(BATCH, 4, TOKENS, head_dim, dtype=dtype, device="cuda")
    key = torch.empty(BATCH, 2, TOKENS, head_dim, dtype=dtype, device="cuda")
    block = attend(query, key, key, 0.125, causal=True)
    assert block.output.dtype == dtype and block.log_sum_exp.dtype == torch.float32
    grads = attend_backward(torch.empty_like(query), query, key, key, block, 0.125, causal=True)
    assert [(grad.shape, grad.dtype) for grad in grads] == [(t.shape, dtype) for t in (query, key, key)]
    assert not any(kernels.counts.values())
