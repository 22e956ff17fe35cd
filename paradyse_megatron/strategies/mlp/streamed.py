"""The MLP on own tokens with streamed weights: no rank holds a full weight or the whole intermediate.

Each owner's part of the intermediate passes through fc1, activation and fc2 before the next owner's begins, so of
its f columns only f/P exist at a time, forward and (computed again) backward. With y = sum over owners r of
activation(x A_r^T + c_r) B_r^T, where A_r, c_r, B_r are what rank r stores of fc1, its bias and fc2.

Sends per rank, with W elements of weights and biases: W (P-1)/P forward; backward as much for the weights again and
as much for their gradients (METP of ParaDySe, arXiv 2511.13198, section on memory-efficient tensor parallelism).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.streamed import GradientsToOwners, ShardStream
from paradyse_megatron.strategies.accumulate import add_product_, as_rows, new_sum
from paradyse_megatron.strategies.mlp.gathered import MlpShards

_FC1_WEIGHT, _FC1_BIAS, _FC2_WEIGHT = range(3)


def streamed_mlp(hidden: Tensor, shards: MlpShards, group: Group, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """[s/P, b, h] to [s/P, b, h] without the output bias.

    `activation` maps an owner's fc1 output [n, f/P] (gated: [n, 2 f/P] as [gate, linear], which is how each owner
    stores its rows) to [n, f/P]; it closes over no parameter.
    """
    stream = ShardStream((shards.fc1_weight, shards.fc1_bias, shards.fc2_weight), group)
    return _StreamedMlp.apply(hidden, *stream.parameters, _Call(stream, activation))


@dataclass(frozen=True)
class _Call:
    stream: ShardStream
    activation: Callable[[Tensor], Tensor]


class _StreamedMlp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, fc1_weight: Tensor, fc1_bias: Tensor | None, fc2_weight: Tensor, call: _Call
    ) -> Tensor:
        ctx.save_for_backward(hidden)
        ctx.call = call
        rows = as_rows(hidden)
        total = new_sum(rows, hidden.shape[-1])
        for _, (fc1, bias, fc2) in call.stream.owners():
            assert fc1 is not None and fc2 is not None
            add_product_(total, call.activation(F.linear(rows, fc1, bias)), fc2.t())
        return total.to(hidden.dtype).view(hidden.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (hidden,) = ctx.saved_tensors
        call, (needs_hidden, *needs_weights) = ctx.call, ctx.needs_input_grad[:4]
        rows, grad_rows = as_rows(hidden), as_rows(grad)
        hidden_grad = new_sum(rows, hidden.shape[-1]) if needs_hidden else None
        gradients = GradientsToOwners(call.stream)
        for owner, (fc1, bias, fc2) in call.stream.owners():
            intermediate = F.linear(rows, fc1, bias)
            with torch.enable_grad():
                activated = call.activation(intermediate.requires_grad_())
            if needs_weights[_FC2_WEIGHT]:
                gradients.start(owner, _FC2_WEIGHT, grad_rows.t() @ activated.detach())
            (intermediate_grad,) = torch.autograd.grad(activated, intermediate, grad_rows @ fc2)
            del intermediate, activated
            if needs_weights[_FC1_WEIGHT]:
                gradients.start(owner, _FC1_WEIGHT, intermediate_grad.t() @ rows)
            if needs_weights[_FC1_BIAS]:
                gradients.start(owner, _FC1_BIAS, intermediate_grad.sum(0))
            if hidden_grad is not None:
                add_product_(hidden_grad, intermediate_grad, fc1)
        hidden_grad = None if hidden_grad is None else hidden_grad.to(hidden.dtype).view(hidden.shape)
        return hidden_grad, *gradients.finish(), None
