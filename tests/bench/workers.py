"""What ranks do in tests of links."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import torch
import torch.distributed as dist


def seconds_to_gather(num_bytes: int) -> float:
    """Each of two ranks sends half of `num_bytes` to the other; the fastest of three times."""
    times = []
    for _ in range(3):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_gather_into_tensor(torch.zeros(num_bytes // 4), torch.ones(num_bytes // 8))
        times.append(time.perf_counter() - begin)
    return min(times)


def fail_on_rank_1() -> None:
    """One rank fails while the other is busy."""
    if dist.get_rank() == 1:
        raise MemoryError("as if it were real")
    time.sleep(60)


def hold_links() -> None:
    """The main program of a benchmark that is killed while its networks are up."""
    from paradyse_megatron.bench.links import Links

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
    with Links(2, rate_mbit=100):
        print("up", flush=True)
        time.sleep(60)


def contest_with_a_wrong_and_an_absent_peer(**asked: Any) -> Any:
    """torch's ring with keys a little too large, and no DeepSpeed."""
    sys.modules["deepspeed"] = None  # an import of it fails
    from paradyse_megatron.bench.peers import contest, of_torch

    right = of_torch._TorchRing.apply
    of_torch._TorchRing.apply = lambda query, key, value, *others: right(query, key * 1.0001, value, *others)
    return contest.contest(**asked)
