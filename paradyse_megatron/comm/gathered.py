"""Weights that are stored in shards and used whole for one matrix product.

`gathered_linear` is the only consumer: it gathers the shards, multiplies, and lets the whole weight go. The
backward pass gathers again, so that between the two passes a rank keeps its own shard only, and hands the
sum of all ranks' gradients back to the shard's owner (reduce-scatter).

Both directions overlap with compute. Forward, the gather begins when the `GatheredWeight` is told to
`start`, not when the product needs it. Backward, the gather runs beside the product for the weight's gradient and
the reduce-scatter beside the product for the input's; the wait for it stands in `_HandOver`, a node at the place
where the `GatheredWeight` was made, so whatever lies between runs while the gradient travels. Made and started one
layer ahead (`layers.prefetch`), weights travel behind the compute of the layer before, gradients behind its backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paradyse_megatron.comm.collectives import Group, start_all_gather, start_reduce_scatter


class GatheredWeight:
    """One use of a sharded parameter by one layer in one micro-batch.

    Args:
        shard: this rank's part of a weight [out, in] or of a bias [out].
        group: the ranks that hold the other parts.
        partition_dim: 0 when each rank holds some rows (column parallel in Megatron's words), 1 when it holds
            some columns (row parallel). Gathering always concatenates dimension 0, so the latter travels transposed.

    Attributes:
        wanted_next: weights to begin gathering when this one's backward begins: those of the layer before.
    """

    def __init__(self, shard: Tensor, group: Group, partition_dim: int = 0):
        self.group = group
        self.transposed = partition_dim == 1
        self.reduction = _Reduction(shard, group, self.transposed)
        self.entry = _HandOver.apply(shard, self.reduction)
        self.wanted_next: Sequence[GatheredWeight] = ()
        self._shard = shard.detach()
        self._gather: tuple[Tensor, dist.Work] | None = None

    def start(self) -> None:
        """Begin to gather; further calls before `take` do nothing."""
        if self._gather is None and self.group.size() > 1:
            self._gather = start_all_gather(self._sent_form(), self.group)

    def take(self) -> Tensor:
        """The whole weight: [out, in], or [in, out] when the shards are columns. The caller lets it go after use."""
        if self.group.size() == 1:
            return self._sent_form()
        self.start()
        assert self._gather is not None
        (whole, work), self._gather = self._gather, None
        work.wait()
        return whole

    def _sent_form(self) -> Tensor:
        return self._shard.t().contiguous() if self.transposed else self._shard


GatheredTriple = tuple[GatheredWeight, GatheredWeight | None, GatheredWeight]
"""What attention and MLP alike consist of: a column-parallel weight, its bias or None, a row-parallel weight."""


def gather_triple(first: Tensor, bias: Tensor | None, second: Tensor, group: Group) -> GatheredTriple:
    """The shards of one attention or MLP for one use; nothing travels before `start`."""
    gathered_bias = None if bias is None else GatheredWeight(bias, group)
    return GatheredWeight(first, group), gathered_bias, GatheredWeight(second, group, partition_dim=1)


class _Reduction:
    """The gradient's way back to the owner of the shard."""

    def __init__(self, shard: Tensor, group: Group, transposed: bool):
        self._parameter, self._group, self._transposed = shard, group, transposed
        self._work: dist.Work | None = None

    def start(self, whole_grad: Tensor) -> Tensor:
        """Begin to sum over the ranks; returns this rank's part, which nobody may read before `finish`."""
        shard_grad = whole_grad
        if self._group.size() > 1:
            shard_grad, self._work = start_reduce_scatter(whole_grad, self._group)
        return shard_grad.t() if self._transposed else shard_grad

    def finish(self, shard_grad: Tensor) -> Tensor:
        """Wait for the sum."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        if hasattr(self._parameter, "grad_added_to_main_grad"):
            # Megatron's fused weight-gradient kernel leaves this set; DDP would then drop the gradient returned here.
            self._parameter.grad_added_to_main_grad = False
        return shard_grad.contiguous()


class _HandOver(torch.autograd.Function):
    """Identity on the shard; backward, the point where its reduced gradient is waited for."""

    @staticmethod
    def forward(ctx: Any, shard: Tensor, reduction: _Reduction) -> Tensor:
        ctx.reduction = reduction
        return shard.view_as(shard)

    @staticmethod
    def backward(ctx: Any, shard_grad: Tensor) -> tuple[Tensor, None]:
        return ctx.reduction.finish(shard_grad), None


def gathered_linear(inputs: Tensor, weight: GatheredWeight, bias: GatheredWeight | None = None) -> Tensor:
    """`inputs @ W.T + bias` with the whole weight on this rank's tokens.

    Shapes: [t, b, in] to [t, b, out], both dimensions of the unsharded layer.
    """
    return _GatheredLinear.apply(inputs, weight.entry, None if bias is None else bias.entry, weight, bias)


class _GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight_entry: Tensor,
        bias_entry: Tensor | None,
        weight: GatheredWeight,
        bias: GatheredWeight | None,
    ) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.weight, ctx.bias = weight, bias
        weight.start()
        if bias is not None:
            bias.start()
        whole = weight.take()
        output = torch.matmul(inputs, whole if weight.transposed else whole.t())
        return output if bias is None else output.add_(bias.take())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        (inputs,) = ctx.saved_tensors
        weight, bias = ctx.weight, ctx.bias
        needs_inputs, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        if needs_inputs:
            weight.start()
        for earlier in weight.wanted_next:
            earlier.start()
        grad_rows = grad.reshape(-1, grad.shape[-1])
        weight_grad = bias_grad = inputs_grad = None
        if needs_weight:
            rows = inputs.reshape(-1, inputs.shape[-1])
            weight_grad = weight.reduction.start(rows.t() @ grad_rows if weight.transposed else grad_rows.t() @ rows)
        if needs_bias:
            bias_grad = bias.reduction.start(grad_rows.sum(0))
        if needs_inputs:
            whole = weight.take()
            inputs_grad = torch.matmul(grad, whole.t() if weight.transposed else whole)
        return inputs_grad, weight_grad, bias_grad, None, None
