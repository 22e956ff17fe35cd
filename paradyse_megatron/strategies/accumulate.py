"""Sums of matrix products, in a precision in which their number does not matter."""

from __future__ import annotations

import torch
from torch import Tensor

from paradyse_megatron.strategies.attention.merge import accumulator_dtype


def new_sum(rows: Tensor, width: int) -> Tensor:
    """Zeros [number of `rows`, `width`] in the accumulator's dtype."""
    return torch.zeros(rows.shape[0], width, dtype=accumulator_dtype(rows.dtype), device=rows.device)


def add_product_(total: Tensor, rows: Tensor, matrix: Tensor) -> None:
    """`total += rows @ matrix`, in place. Shapes: [n, out], [n, in], [in, out].

    In half precision the product itself is rounded once, as any matrix product is; the sum is not.
    """
    if total.dtype == rows.dtype:
        total.addmm_(rows, matrix)
    else:
        total.add_(rows @ matrix)


def as_rows(tensor: Tensor) -> Tensor:
    """[t, b, n] to [t * b, n]."""
    return tensor.reshape(-1, tensor.shape[-1])


class ParameterSums:
    """A rank's gradients of replicated parameters, part by part: the share of its tokens or heads, as Megatron expects.

    Attributes:
        parameters: those that want a gradient.
    """

    def __init__(self, parameters: tuple[Tensor, ...]):
        self._all = parameters
        self.parameters = tuple(parameter for parameter in parameters if parameter.requires_grad)
        self._sums = [
            torch.zeros_like(parameter, dtype=accumulator_dtype(parameter.dtype)) for parameter in self.parameters
        ]

    def add(self, grads: list[Tensor]) -> None:
        """One part's gradients of `parameters`."""
        for total, grad in zip(self._sums, grads, strict=True):
            total += grad

    def totals(self) -> list[Tensor | None]:
        """Of every parameter; None for those that want none."""
        sums = iter(self._sums)
        return [next(sums).to(parameter.dtype) if parameter.requires_grad else None for parameter in self._all]
