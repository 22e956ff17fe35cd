"""Runs the real loss heads, of any size, on fake tensors, and counts what they hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from megatron.core.tensor_parallel.layers import linear_with_grad_accumulation_and_async_allreduce
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from paradyse_megatron.costmodel import head_bytes
from paradyse_megatron.costmodel.setting import Setting
from paradyse_megatron.profiling.counting import Counter
from paradyse_megatron.profiling.parts import DTYPES
from paradyse_megatron.strategies.loss_head import chunked_cross_entropy


@dataclass(frozen=True)
class HeadHeld:
    """Bytes above hidden state, weight and labels.

    Attributes:
        between: from the end of forward to the beginning of backward.
        peak: over forward and backward, the gradients that come out included.
    """

    between: int
    peak: int


def run_head(head: str, setting: Setting, seq_length: int, group: dist.ProcessGroup) -> HeadHeld:
    """What the head "whole" or "chunked" holds at one length; inside `fake_ranks` of the setting's size."""
    parallel_state.get_global_memory_buffer().buffer.clear()
    shape, dtype = setting.shape, DTYPES[setting.shape.dtype]
    with FakeTensorMode(), Counter() as counter:
        hidden = torch.empty(seq_length // setting.group_size, setting.batch, shape.hidden_size, dtype=dtype)
        weight = torch.empty(head_bytes.num_columns(setting), shape.hidden_size, dtype=dtype)
        labels = torch.zeros(setting.batch, seq_length, dtype=torch.int64)
        inputs, forward = counter.held_bytes, counter.begin()
        run = _whole if head == "whole" else chunked_cross_entropy
        losses = run(hidden.requires_grad_(), weight.requires_grad_(), labels, group)
        between, backward = counter.held_bytes, counter.begin()
        losses.sum().backward()
    return HeadHeld(between - inputs, max(forward.held_bytes + backward.held_bytes) - inputs)


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
