"""A norm for sequence-parallel training without Transformer Engine or Apex.

Megatron's `WrappedTorchNorm` refuses sequence parallelism only because torch's norms do not mark their parameters.
Marked, they train correctly: `finalize_model_grads` sums the ranks' partial gradients by the attribute.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_config import TransformerConfig


class SequenceParallelNorm:
    """Builds torch's LayerNorm or RMSNorm with parameters marked as `sequence_parallel`.

    Raises:
        ValueError: for norm options that torch's norms lack.
    """

    def __new__(  # type: ignore[misc]
        cls,
        config: TransformerConfig,
        hidden_size: int,
        eps: float = 1e-5,
        **unused: Any,
    ) -> torch.nn.Module:
        _check(config)
        norm_class = {"LayerNorm": torch.nn.LayerNorm, "RMSNorm": torch.nn.RMSNorm}[config.normalization]
        norm = norm_class(hidden_size, eps=eps, dtype=config.params_dtype)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return norm


def norm_for(stock_norm: Any, config: TransformerConfig) -> Any:
    """The stock norm where it accepts this configuration, ours where it refuses sequence parallelism."""
    refused = stock_norm is WrappedTorchNorm and config.sequence_parallel
    return SequenceParallelNorm if refused else stock_norm


def _check(config: TransformerConfig) -> None:
    if config.normalization not in ("LayerNorm", "RMSNorm"):
        raise ValueError(
            f"--normalization {config.normalization} needs Transformer Engine with sequence parallelism; "
            "torch has LayerNorm and RMSNorm."
        )
    for field, flag in (
        ("layernorm_zero_centered_gamma", "--apply-layernorm-1p"),
        ("persist_layer_norm", "persistent layer norm (give --no-persist-layer-norm)"),
        ("memory_efficient_layer_norm", "--memory-efficient-layer-norm"),
    ):
        if getattr(config, field, False):
            raise ValueError(f"{flag} needs Transformer Engine or Apex, and neither is installed. Turn it off.")
