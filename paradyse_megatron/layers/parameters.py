"""Reading a Megatron linear layer's parameters without calling the layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def weight_and_bias(linear: Any) -> tuple[Tensor, Tensor | None]:
    """The shards of a column- or row-parallel linear layer, fit for use in this forward pass.

    With `--overlap-param-gather`, Megatron's data-parallel wrapper waits for a module's parameters in a hook that
    runs when the module is called. A strategy does not call it, so the hooks run here.
    """
    for hook in linear._forward_pre_hooks.values():
        hook(linear, ())
    bias = getattr(linear, "bias", None)
    return linear.weight, bias if bias is not None and bias.numel() else None
