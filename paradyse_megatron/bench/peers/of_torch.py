"""torch's templated ring attention (`torch.distributed.tensor.experimental`), which its `context_parallel` runs.

`context_parallel` itself has no entry for the flash attention of CPUs; the template takes the operator as an argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from paradyse_megatron.bench.peers.case import Case
from paradyse_megatron.bench.peers.contestant import HEADS_FIRST, RING, Contestant
from paradyse_megatron.comm.collectives import Group

PACKAGE, REMEDY = "torch", "pip install --upgrade torch"
_TOKENS_DIM = 2


def contestants(case: Case, group: Group) -> Iterator[Contestant]:
    """Keys and values gathered at once, and passed on from rank to rank; both with balanced causal work."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as template

    for method in template._RotateMethod:

        def attend(query: Tensor, key: Tensor, value: Tensor, method: Any = method) -> Tensor:
            return _TorchRing.apply(query, key, value, group, case.geometry.softmax_scale, method)

        name = f"torch, {method.name.lower().replace('_', '-')}"
        yield Contestant(name, RING, True, HEADS_FIRST, HEADS_FIRST, attend)


class _TorchRing(torch.autograd.Function):
    """The template's two halves joined, as its dispatcher does for the operators that it knows."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, group: Group, scale: float, method: Any) -> Tensor:
        from torch.distributed.tensor.experimental._context_parallel import _attention as template

        template._cp_options.rotate_method = method
        operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        output, log_sum_exp, *_ = template._templated_ring_attention(
            group, _TOKENS_DIM, operator, query, key, value, is_causal=True, scale=scale
        )
        ctx.save_for_backward(query, key, value, output, log_sum_exp)
        ctx.group, ctx.scale, ctx.method = group, scale, method
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from torch.distributed.tensor.experimental._context_parallel import _attention as template

        template._cp_options.rotate_method = ctx.method
        query, key, value, output, log_sum_exp = ctx.saved_tensors

        def operator(query: Tensor, key: Tensor, value: Tensor, **named: Any) -> tuple[Tensor, ...]:
            whole = named["out"], named["logsumexp"]
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                named["grad_out"], query, key, value, *whole, 0.0, named["is_causal"], scale=ctx.scale
            )

        grads = template._templated_ring_attention_backward(
            ctx.group, _TOKENS_DIM, operator, grad, "grad_out", query, key, value, output, log_sum_exp, is_causal=True
        )
        return *grads[:3], None, None, None
