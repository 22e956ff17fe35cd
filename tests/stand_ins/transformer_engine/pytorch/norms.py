"""See `tests.stand_ins`: LayerNorm and RMSNorm with Transformer Engine's arguments, attributes and state-dict keys."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def apply_norm(
    inputs: Tensor, weight: Tensor, bias: Tensor | None, eps: float, is_rms: bool, zero_centered: bool
) -> Tensor:
    """The formula itself, in at least fp32 inside."""
    precise = torch.promote_types(inputs.dtype, torch.float32)
    x = inputs.to(precise)
    centred = x if is_rms else x - x.mean(-1, keepdim=True)
    scaled = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * (weight.to(precise) + zero_centered)
    return (scaled if bias is None else scaled + bias.to(precise)).to(inputs.dtype)


class _Norm(torch.nn.Module):
    is_rms: bool

    def __init__(
        self,
        normalized_shape: int,
        eps: float = 1e-5,
        sequence_parallel: bool | None = None,
        params_dtype: torch.dtype | None = None,
        zero_centered_gamma: bool = False,
        device: Any = "cuda",
    ):
        super().__init__()
        self.eps, self.zero_centered_gamma, self.sequence_parallel = eps, zero_centered_gamma, sequence_parallel
        start = torch.full((normalized_shape,), float(not zero_centered_gamma), dtype=params_dtype, device=device)
        self.weight = torch.nn.Parameter(start)
        self.bias = None if self.is_rms else torch.nn.Parameter(torch.zeros_like(start))
        if sequence_parallel is not None:
            for parameter in self.parameters():
                parameter.sequence_parallel = sequence_parallel

    def forward(self, inputs: Tensor) -> Tensor:
        """Over the last dimension."""
        return apply_norm(inputs, self.weight, self.bias, self.eps, self.is_rms, self.zero_centered_gamma)

    def get_extra_state(self) -> Tensor:
        """Empty without fp8."""
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing to set."""


class LayerNorm(_Norm):
    """Transformer Engine's, in name."""

    is_rms = False


class RMSNorm(_Norm):
    """Transformer Engine's, in name."""

    is_rms = True
