"""See `tests.stand_ins`: causal attention with Transformer Engine's arguments and shapes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class DotProductAttention(torch.nn.Module):
    """Query [s, b, a/P, d], key and value [s, b, g/P, d] to [s, b, a/P * d]."""

    def __init__(self, num_attention_heads: int, kv_channels: Any, softmax_scale: float | None = None, **kwargs: Any):
        super().__init__()
        self.softmax_scale = softmax_scale
        self.is_dropped = kwargs["attention_dropout"] > 0

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, attn_mask_type: str
    ) -> Tensor:
        """Causal, without dropout; anything else is not here."""
        assert attn_mask_type == "causal" and attention_mask is None and not self.is_dropped
        q, k, v = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        output = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.softmax_scale, enable_gqa=True)
        return output.permute(2, 0, 1, 3).flatten(2)

    def get_extra_state(self) -> Tensor:
        """Empty without fp8."""
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing to set."""
