"""Wall time and peak memory of what all ranks of a group do together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state

RUNS_WEIGHED = 2
"""What messages hold on their way differs from one run to the next: the most of several counts."""


def milliseconds(run: Callable[[], object], group: dist.ProcessGroup) -> float:
    """Wall time on the slowest rank. Collective over the group."""
    settle(group)
    begin = time.perf_counter()
    run()
    settle(group)
    return 1000 * (time.perf_counter() - begin)


def peak_bytes(run: Callable[[], object], group: dist.ProcessGroup) -> int:
    """The most that was allocated above what is there already, the most of all ranks. Collective over the group.

    Buffers that Megatron keeps from one layer to the next are part of what a run allocates, not of what is there.
    """
    parallel_state.get_global_memory_buffer().buffer.clear()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(RUNS_WEIGHED):
        run()
    return _greatest(torch.cuda.max_memory_allocated() - before, group)


def settle(group: dist.ProcessGroup) -> None:
    """Wait until this device is idle and all ranks are here."""
    torch.cuda.synchronize()
    dist.barrier(group)


def accumulate_apart(parameter: Any) -> None:
    """Give a parameter an fp32 `main_grad` to which gradients are added and let go, as Megatron's DDP does."""
    parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
    parameter.grad_added_to_main_grad = False

    def accumulate(done: Any) -> None:
        if done.grad is not None and not done.grad_added_to_main_grad:
            done.main_grad.add_(done.grad)
        done.grad_added_to_main_grad = False
        done.grad = None

    parameter.register_post_accumulate_grad_hook(accumulate)


def _greatest(number: int, group: dist.ProcessGroup) -> int:
    """Of all ranks' numbers."""
    held = torch.tensor([number], dtype=torch.int64, device="cuda")
    dist.all_reduce(held, dist.ReduceOp.MAX, group=group)
    return int(held)
