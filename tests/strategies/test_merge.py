"""Merging partial attention: large exponents, rows without keys, and the plain kernel as the oracle."""

from __future__ import annotations

import torch

from paradyse_megatron.strategies.attention.core import (
    Block,
    _attend_plain,
    _attend_plain_backward,
    attend,
    attend_backward,
)
from paradyse_megatron.strategies.attention.merge import merge_block_

INF = float("inf")


def merged(first_lse: float, second_lse: float, first: float = 2.0, second: float = 6.0) -> tuple[float, float]:
    output, lse = torch.full((1, 1, 1, 1), first), torch.full((1, 1, 1), first_lse)
    merge_block_(output, lse, torch.full((1, 1, 1, 1), second), torch.full((1, 1, 1), second_lse))
    return output.item(), lse.item()


def test_large_exponents_do_not_overflow():
    output, lse = merged(800.0, 790.0)
    assert 2.0 < output < 2.001 and 800.0 <= lse < 800.001


def test_rows_without_keys_contribute_nothing_on_either_side_or_both():
    assert merged(-INF, 1.0) == (6.0, 1.0)
    assert merged(1.0, -INF) == (2.0, 1.0)
    output, lse = merged(-INF, -INF, first=0.0, second=0.0)
    assert (output, lse) == (0.0, -INF)


def test_equal_parts_average():
    assert merged(3.0, 3.0)[0] == 4.0


def test_the_library_kernel_and_the_plain_formula_agree_with_grouped_heads_and_unequal_lengths():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, heads, n, 8, generator=generator, dtype=torch.float64) for heads, n in ((4, 6), (2, 10), (2, 10))
    )
    fast, plain = attend(q, k, v, 0.3, False), _attend_plain(q, k, v, 0.3, False)
    assert torch.allclose(fast.output, plain.output, rtol=1e-12)
    assert torch.allclose(fast.log_sum_exp, plain.log_sum_exp, rtol=1e-12)
    grad = torch.randn(q.shape, generator=generator, dtype=torch.float64)
    whole = Block(fast.output, fast.log_sum_exp)
    for a, b in zip(
        attend_backward(grad, q, k, v, whole, 0.3, False),
        _attend_plain_backward(grad, q, k, v, whole, 0.3, False),
        strict=True,
    ):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-14)
