"""A stand-in, on CPU, for Apex's extension of that name: not Apex, and no kernel. See `tests.stand_ins`."""

from __future__ import annotations

from torch import Tensor


def wgrad_gemm_accum_fp32(inputs: Tensor, grad: Tensor, main_grad: Tensor) -> None:
    """Adds the gradient of a weight, grad^T inputs, to its main gradient. Shapes: [n, in], [n, out], [out, in]."""
    main_grad.add_(grad.t() @ inputs)


wgrad_gemm_accum_fp16 = wgrad_gemm_accum_fp32
