"""P ranks that are not there: this process is one of them, and what it sends arrives nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from torch.testing._internal.distributed.fake_pg import FakeStore


@contextmanager
def fake_ranks(group_size: int, rank: int = 0, ranks_per_node: int | None = None) -> Iterator[dist.ProcessGroup]:
    """Inside, Megatron's tensor-parallel group has `group_size` ranks, of which this process is `rank`.

    Args:
        ranks_per_node: what torchrun would say of them; None for all on one node.

    Raises:
        RuntimeError: process groups are up in this process already.
    """
    if dist.is_initialized():
        raise RuntimeError("Tracing needs a process without process groups of its own.")
    environment = dict(os.environ)
    os.environ["LOCAL_WORLD_SIZE"] = str(ranks_per_node or group_size)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=group_size)
    try:
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=group_size)
        model_parallel_cuda_manual_seed(1)
        yield parallel_state.get_tensor_model_parallel_group()
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
        os.environ.clear()
        os.environ.update(environment)
