"""See `tests.stand_ins`: tensor-parallel linear layers with Transformer Engine's arguments and attributes.

With `fuse_wgrad_accumulation` the gradient of a weight goes straight to its `main_grad`, the weight is marked
`grad_added_to_main_grad`, and autograd gets a dummy that nobody may read.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformer_engine.pytorch.module.base import get_dummy_wgrad
from transformer_engine.pytorch.norms import apply_norm


class Linear(torch.nn.Module):
    """Weight [out/P, in] (`parallel_mode="column"`), [out, in/P] ("row") or [out, in] (None)."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        get_rng_state_tracker: Any = None,
        init_method: Any = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: torch.dtype | None = None,
        parallel_mode: str | None = None,
        device: Any = "cuda",
        rng_tracker_name: str | None = None,
    ):
        super().__init__()
        self.in_features = in_features // (tp_size if parallel_mode == "row" else 1)
        self.out_features = out_features // (tp_size if parallel_mode == "column" else 1)
        self.fuse_wgrad_accumulation = fuse_wgrad_accumulation
        self.tp_group, self.tp_size, self.parallel_mode = tp_group, tp_size, parallel_mode
        self.sequence_parallel = tp_size > 1 and sequence_parallel
        self.use_bias, self.return_bias = bias, return_bias
        self.weight = torch.nn.Parameter(
            torch.empty(self.out_features, self.in_features, dtype=params_dtype, device=device)
        )
        init_method(self.weight.data)
        _mark_as_sharded(self.weight, 1 if parallel_mode == "row" else 0)
        if not bias:
            self.bias = torch.empty(0, dtype=params_dtype, device=device)
            return
        self.bias = torch.nn.Parameter(torch.zeros(self.out_features, dtype=params_dtype, device=device))
        if parallel_mode == "row":
            self.bias.sequence_parallel = self.sequence_parallel
        elif parallel_mode == "column":
            _mark_as_sharded(self.bias, 0)

    def forward(self, inputs: Tensor, is_first_microbatch: bool | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """[tokens, b, in] to [tokens, b, out]; with `return_bias` the bias comes beside it, not in it."""
        output = self._enter(inputs)
        product = _Product.apply(output, self.weight, self.fuse_wgrad_accumulation)
        output = self._leave(product)
        if self.return_bias:
            return output, self.bias
        return output + self.bias if self.use_bias else output

    def _enter(self, inputs: Tensor) -> Tensor:
        from megatron.core.tensor_parallel import mappings

        if self.parallel_mode != "column" or self.tp_size == 1:
            return inputs
        if self.sequence_parallel:
            return mappings.gather_from_sequence_parallel_region(inputs, group=self.tp_group)
        return mappings.copy_to_tensor_model_parallel_region(inputs, group=self.tp_group)

    def _leave(self, product: Tensor) -> Tensor:
        from megatron.core.tensor_parallel import mappings

        if self.parallel_mode != "row" or self.tp_size == 1:
            return product
        if self.sequence_parallel:
            return mappings.reduce_scatter_to_sequence_parallel_region(product, group=self.tp_group)
        return mappings.reduce_from_tensor_model_parallel_region(product, group=self.tp_group)

    def get_extra_state(self) -> Tensor:
        """Empty without fp8."""
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing to set."""


class LayerNormLinear(Linear):
    """A norm of the own tokens, then a column-parallel `Linear`."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        eps: float = 1e-5,
        normalization: str = "LayerNorm",
        zero_centered_gamma: bool = False,
        return_layernorm_output: bool = False,
        **kwargs: Any,
    ):
        super().__init__(in_features, out_features, **kwargs)
        self.eps, self.normalization, self.zero_centered_gamma = eps, normalization, zero_centered_gamma
        start = torch.full((in_features,), float(not zero_centered_gamma), dtype=self.weight.dtype)
        self.layer_norm_weight = torch.nn.Parameter(start)
        self.layer_norm_weight.sequence_parallel = self.sequence_parallel
        self.layer_norm_bias = None
        if normalization == "LayerNorm":
            self.layer_norm_bias = torch.nn.Parameter(torch.zeros_like(start))
            self.layer_norm_bias.sequence_parallel = self.sequence_parallel

    def forward(self, inputs: Tensor, is_first_microbatch: bool | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """As `Linear`, of the normalised input."""
        is_rms = self.normalization == "RMSNorm"
        normalised = apply_norm(
            inputs, self.layer_norm_weight, self.layer_norm_bias, self.eps, is_rms, self.zero_centered_gamma
        )
        return super().forward(normalised, is_first_microbatch)


class GroupedLinear(torch.nn.Module):
    """A name that Megatron subclasses."""


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, fuse: bool) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.weight, ctx.fuse = weight, fuse
        return F.linear(inputs, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (inputs,) = ctx.saved_tensors
        weight = ctx.weight
        weight_grad = grad.flatten(0, 1).t() @ inputs.flatten(0, 1)
        if ctx.fuse:
            weight.main_grad.add_(weight_grad)
            weight_grad = None
            if hasattr(weight, "grad_added_to_main_grad"):
                weight.grad_added_to_main_grad = True
                zero = getattr(weight, "zero_out_wgrad", False)
                weight_grad = get_dummy_wgrad(list(weight.shape), weight.dtype, zero)
        return grad @ weight, weight_grad, None


def _mark_as_sharded(parameter: Tensor, dim: int) -> None:
    parameter.tensor_model_parallel, parameter.partition_dim, parameter.partition_stride = True, dim, 1
