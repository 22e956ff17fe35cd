"""The loss head over chunks of the sequence: output projection and cross entropy, vocabulary-parallel.

The logits of a long sequence are its largest tensor: s V/P numbers on each rank, several times over. Here they exist
for one chunk of tokens at a time (`layouts.loss_chunks`): the ranks' rows of the chunk are gathered, the next chunk's
under way meanwhile, and multiplied with this rank's V/P columns. Neither all tokens nor all logits are ever in one
place. Backward computes the logits again, chunk by chunk; between the two passes a rank keeps its own hidden shard and
two numbers a token.

Rank r sees the logits l_j of token i for its own columns j only, and keeps of them the largest, m_r, and the sum
e_r = sum_j exp(l_j - m_r). After the last chunk two small all-reduces merge them, with m = max_r m_r and
e = sum_r e_r exp(m_r - m), as one merges softmaxes over blocks (arXiv 2307.08691, section 3.1):

    loss_i = log e - (l_y - m),    d loss_i / d l_j = exp(l_j - m) / e - [j = y].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paradyse_megatron.comm.collectives import Group, start_all_gather, start_reduce_scatter
from paradyse_megatron.layouts.loss_chunks import rows_per_chunk, tokens_per_chunk
from paradyse_megatron.strategies.accumulate import add_product_, as_rows, new_sum
from paradyse_megatron.strategies.attention.merge import accumulator_dtype


def chunked_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, group: Group, chunk_rows: int | None = None
) -> Tensor:
    """Losses of all tokens on every rank, [b, s], in fp32 (fp64 for fp64).

    The gradient that comes back must be the same on every rank, as with Megatron's own head. Then `hidden` gets the
    complete gradient of the rank's own tokens, and `weight` the complete one of its own columns.

    Args:
        hidden: [s/P, b, h], the rank's own tokens.
        weight: [V/P, h], the rank's own columns of the vocabulary; the word embeddings' weight when tied.
        labels: [b, s], of all tokens. One that no rank has (-100) counts as a target of logit m.
        group: the P ranks.
        chunk_rows: rows of a rank's shard in a chunk; by default as `layouts.loss_chunks` says.
    """
    num_rows, batch, hidden_size = hidden.shape
    if labels.shape != (batch, num_rows * group.size()):
        raise ValueError(
            f"The loss head was given labels of shape {tuple(labels.shape)} for {group.size()} ranks with {num_rows} "
            f"tokens of {batch} sequences each; their shape must be {(batch, num_rows * group.size())}."
        )
    if chunk_rows is None:
        num_bytes = accumulator_dtype(hidden.dtype).itemsize
        max_tokens = tokens_per_chunk(weight.shape[0], hidden_size, num_bytes)
        chunk_rows = rows_per_chunk(num_rows, group.size() * batch, max_tokens)
    return _ChunkedCrossEntropy.apply(hidden, weight, labels, group, chunk_rows)


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, group: Group, chunk_rows: int) -> Tensor:
        owned, columns = _own_columns(_by_rank(labels, group), weight, group)
        statistics = hidden.new_empty((3, *columns.shape), dtype=accumulator_dtype(hidden.dtype))

        def visit(rows: slice, gathered: Tensor) -> None:
            of_chunk = _statistics(_logits(gathered, weight), columns[:, rows].flatten())
            statistics[:, :, rows] = of_chunk.view_as(statistics[:, :, rows])

        _visit_chunks(hidden, chunk_rows, group, visit)
        maxima, sums, targets = _merge(statistics, owned, group)
        ctx.save_for_backward(hidden, weight, labels, maxima, sums)
        ctx.parameter, ctx.group, ctx.chunk_rows = weight, group, chunk_rows
        return (sums.log() - targets).flatten(0, 1).t().contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        hidden, weight, labels, maxima, sums = ctx.saved_tensors
        owned, columns = _own_columns(_by_rank(labels, ctx.group), weight, ctx.group)
        grad = _by_rank(grad, ctx.group)
        gradients = _Gradients(hidden, weight, ctx.needs_input_grad, ctx.group)

        def visit(rows: slice, gathered: Tensor) -> None:
            of_chunk = (tensor[:, rows].flatten() for tensor in (maxima, sums, grad, owned, columns))
            gradients.add(rows, gathered, _logit_gradients(_logits(gathered, weight), *of_chunk).to(hidden.dtype))

        _visit_chunks(hidden, ctx.chunk_rows, ctx.group, visit)
        if hasattr(ctx.parameter, "grad_added_to_main_grad"):
            # Megatron's fused weight-gradient kernel leaves this set; DDP would then drop the gradient returned here.
            ctx.parameter.grad_added_to_main_grad = False
        return *gradients.finish(), None, None, None


def _visit_chunks(hidden: Tensor, chunk_rows: int, group: Group, visit: Callable[[slice, Tensor], None]) -> None:
    """Call `visit` with the rows of each chunk and what all ranks have there, [P c, b, h]; the next is on its way.

    A function to call, not an iterator to loop over: the loop's variable would keep a third chunk alive.
    """
    chunks = [slice(first, min(first + chunk_rows, len(hidden))) for first in range(0, len(hidden), chunk_rows)]
    arriving = _start_gather(hidden, chunks[0], group)
    for rows, following in zip(chunks, [*chunks[1:], None], strict=True):
        gathered, work = arriving
        if work is not None:
            work.wait()
        if following is not None:
            arriving = _start_gather(hidden, following, group)
        visit(rows, gathered)


def _start_gather(hidden: Tensor, rows: slice, group: Group) -> tuple[Tensor, dist.Work | None]:
    return (hidden[rows], None) if group.size() == 1 else start_all_gather(hidden[rows], group)


def _by_rank(tokens: Tensor, group: Group) -> Tensor:
    """A view of [b, s] as [P, s/P, b]."""
    return tokens.t().unflatten(0, (group.size(), -1))


def _own_columns(labels: Tensor, weight: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    """Which labels are among this rank's columns, and the column of each of these; 0 for the others."""
    columns = labels - group.rank() * weight.shape[0]
    owned = (columns >= 0) & (columns < weight.shape[0])
    return owned, torch.where(owned, columns, 0)


def _logits(gathered: Tensor, weight: Tensor) -> Tensor:
    """[P c, b, h] to [n, V/P] in accumulator precision; rounded to the model's before, as Megatron's are."""
    return (as_rows(gathered) @ weight.t()).to(accumulator_dtype(gathered.dtype))


def _statistics(logits: Tensor, columns: Tensor) -> Tensor:
    """[3, n]: largest logit, sum of exp(logit - largest), logit at `columns`. Overwrites the logits."""
    targets = logits.gather(1, columns[:, None])
    maxima = logits.amax(1, keepdim=True).clamp_min_(torch.finfo(logits.dtype).min)  # -inf minus -inf is no number
    sums = logits.sub_(maxima).exp_().sum(1, keepdim=True)
    return torch.cat([maxima, sums, targets], 1).t()


def _merge(statistics: Tensor, owned: Tensor, group: Group) -> tuple[Tensor, Tensor, Tensor]:
    """[3, P, s/P, b] of the rank's columns, `_statistics` of all tokens, to m, e and l_y - m over all columns."""
    local_maxima, local_sums, local_targets = statistics
    maxima = local_maxima.clone()
    if group.size() > 1:
        dist.all_reduce(maxima, dist.ReduceOp.MAX, group)
    sums = local_sums * (local_maxima - maxima).exp()
    targets = torch.where(owned, local_targets - maxima, 0.0)
    merged = torch.stack([sums, targets])
    if group.size() > 1:
        dist.all_reduce(merged, group=group)
    return maxima, merged[0], merged[1]


def _logit_gradients(
    logits: Tensor, maxima: Tensor, sums: Tensor, grad: Tensor, owned: Tensor, columns: Tensor
) -> Tensor:
    """[n, V/P]: grad (softmax - one-hot), in place of the logits. All others are [n]."""
    grad = grad.to(logits.dtype)
    logits.sub_(maxima[:, None]).exp_().mul_((grad / sums)[:, None])
    return logits.scatter_add_(1, columns[:, None], torch.where(owned, -grad, 0.0)[:, None])


class _Gradients:
    """Those of hidden state and weight, growing chunk by chunk; None for one that nobody needs."""

    def __init__(self, hidden: Tensor, weight: Tensor, needs_grad: tuple[bool, ...], group: Group):
        self._hidden = hidden.new_empty(hidden.shape) if needs_grad[0] else None
        self._sum = new_sum(weight, weight.shape[1]) if needs_grad[1] else None
        self._weight, self._group = weight, group
        self._under_way: tuple[slice, Tensor, dist.Work] | None = None

    def add(self, rows: slice, gathered: Tensor, logits_grad: Tensor) -> None:
        """Of one chunk: the hidden rows' gradients leave for their owners while the weight's is computed."""
        if self._hidden is not None:
            self._hand_over(rows, (logits_grad @ self._weight).view_as(gathered))
        if self._sum is not None:
            add_product_(self._sum, logits_grad.t(), as_rows(gathered))

    def finish(self) -> tuple[Tensor | None, Tensor | None]:
        """Both, complete, in the dtypes of what they are gradients of."""
        self._receive()
        return self._hidden, None if self._sum is None else self._sum.to(self._weight.dtype)

    def _hand_over(self, rows: slice, whole_grad: Tensor) -> None:
        assert self._hidden is not None
        self._receive()
        if self._group.size() == 1:
            self._hidden[rows] = whole_grad
        else:
            self._under_way = (rows, *start_reduce_scatter(whole_grad, self._group))

    def _receive(self) -> None:
        if self._under_way is not None and self._hidden is not None:
            rows, own_grad, work = self._under_way
            work.wait()
            self._hidden[rows] = own_grad
            self._under_way = None
