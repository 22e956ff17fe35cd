"""See `tests.stand_ins`: what autograd gets where a weight's gradient went straight to its `main_grad`."""

from __future__ import annotations

import torch


def get_dummy_wgrad(shape: list[int], dtype: torch.dtype, zero: bool = False) -> torch.Tensor:
    """A gradient that nobody may read: the real one's memory is not initialised, this one's is NaN."""
    return torch.full(shape, 0.0 if zero else torch.nan, dtype=dtype)
