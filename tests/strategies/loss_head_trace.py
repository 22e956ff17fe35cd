"""Bytes of the whole and of the chunked loss head on one of P ranks, without hardware: fake tensors, fake peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.testing._internal.distributed.fake_pg import FakeStore

from paradyse_megatron import cpu

cpu.enable()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy  # noqa: E402
from megatron.core.tensor_parallel.layers import linear_with_grad_accumulation_and_async_allreduce  # noqa: E402

from paradyse_megatron.strategies.loss_head import chunked_cross_entropy  # noqa: E402


@dataclass(frozen=True)
class Head:
    """One head of a model.

    Attributes:
        seq_length, batch, hidden_size, vocab_size: s, b, h, V.
        group_size: P.
        dtype: name of the model's.
    """

    seq_length: int
    batch: int
    hidden_size: int
    vocab_size: int
    group_size: int
    dtype: str


@dataclass(frozen=True)
class Held:
    """Bytes above hidden state, weight and labels.

    Attributes:
        between: from the end of forward to the beginning of backward.
        peak: over forward and backward, the gradients that come out included.
    """

    between: int
    peak: int


def trace(heads: list[tuple[Any, ...]]) -> list[dict[str, Held]]:
    """What each head, given by the fields of `Head`, holds "whole" and "chunked"."""
    parallel_state._set_global_memory_buffer()
    dist.destroy_process_group()
    return [
        {"whole": _held(Head(*head), _whole), "chunked": _held(Head(*head), chunked_cross_entropy)} for head in heads
    ]


def _held(head: Head, run: Callable[..., Tensor]) -> Held:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=head.group_size)
    parallel_state.get_global_memory_buffer().buffer.clear()
    with FakeTensorMode(), MemTracker() as tracker:
        dtype = getattr(torch, head.dtype)
        hidden = torch.empty(head.seq_length // head.group_size, head.batch, head.hidden_size, dtype=dtype)
        weight = torch.empty(head.vocab_size // head.group_size, head.hidden_size, dtype=dtype)
        labels = torch.zeros(head.batch, head.seq_length, dtype=torch.int64)
        inputs = _total(tracker, "current")
        losses = run(hidden.requires_grad_(), weight.requires_grad_(), labels, dist.group.WORLD)
        between = _total(tracker, "current") - inputs
        losses.sum().backward()
        peak = _total(tracker, "peak") - inputs
    dist.destroy_process_group()
    return Held(between, peak)


def _whole(hidden: Tensor, weight: Tensor, labels: Tensor, group: dist.ProcessGroup) -> Tensor:
    """As `GPTModel._postprocess` does it."""
    logits = linear_with_grad_accumulation_and_async_allreduce(
        hidden,
        weight,
        None,
        gradient_accumulation_fusion=False,
        allreduce_dgrad=False,
        sequence_parallel=group.size() > 1,
        tp_group=group,
    )
    losses = vocab_parallel_cross_entropy(logits, labels.t().contiguous(), tp_group=group)
    return losses.t().contiguous()


def _total(tracker: MemTracker, moment: str) -> int:
    return sum(of_device["Total"] for of_device in tracker.get_tracker_snapshot(moment).values())
