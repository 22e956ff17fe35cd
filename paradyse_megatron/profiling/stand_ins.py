"""What Transformer Engine brings on GPUs, for layers traced without it: flash attention and one-kernel norms."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor


class FlashAttention(torch.nn.Module):
    """Megatron's core attention without stored scores."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """[s, b, heads, d] to [s, b, heads * d]."""
        q, k, v = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        output = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return output.permute(2, 0, 1, 3).flatten(2)


class OneKernelNorm(torch.nn.Module):
    """RMSNorm that keeps its input and a number a row."""

    def __init__(self, norm: torch.nn.Module):
        super().__init__()
        self.weight = norm.weight

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., h] to [..., h]."""
        return _RootMeanSquare.apply(hidden, self.weight)


class _RootMeanSquare(torch.autograd.Function):
    """Shapes only: it is for fake tensors, which have no values."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        scale = hidden.new_empty(hidden.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(hidden, weight, scale)
        return hidden.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        hidden, weight, _ = ctx.saved_tensors
        return hidden + grad, weight.clone()


def fuse(layer: Any, config: TransformerConfig) -> None:
    """Put the stand-ins into what a `TransformerLayer` has of attention and norms."""
    if hasattr(layer.self_attention, "core_attention"):
        layer.self_attention.core_attention = FlashAttention()
    if config.normalization == "RMSNorm":
        for name in ("input_layernorm", "pre_mlp_layernorm"):
            if hasattr(getattr(layer, name), "weight"):
                setattr(layer, name, OneKernelNorm(getattr(layer, name)))
