"""Sums of products: their error does not depend on the number of summands."""

from __future__ import annotations

import pytest
import torch

from paradyse_megatron.strategies.accumulate import add_product_, new_sum

DTYPES = [(torch.float64, 1e-14), (torch.float32, 1e-5), (torch.bfloat16, 2e-3)]


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_many_products_are_summed_as_exactly_as_one(dtype, tolerance):
    """A bf16 product is rounded to 2^-9; a sum of 64 kept in bf16 would be wrong by three times the tolerance."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(64, 20, 8, generator=generator, dtype=torch.float64).to(dtype)
    matrices = torch.randn(64, 8, 12, generator=generator, dtype=torch.float64).to(dtype)
    total = new_sum(rows[0], 12)
    in_its_own_dtype = torch.zeros(20, 12, dtype=dtype)
    for left, right in zip(rows, matrices, strict=True):
        add_product_(total, left, right)
        in_its_own_dtype += left @ right
    exact = torch.einsum("kni,kio->no", rows.double(), matrices.double())

    def error(found: torch.Tensor) -> float:
        return ((found.double() - exact).norm() / exact.norm()).item()

    assert error(total) < tolerance
    if dtype == torch.bfloat16:
        assert total.dtype == torch.float32 and error(in_its_own_dtype) > 3 * tolerance
