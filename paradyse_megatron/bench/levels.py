"""Interconnects to emulate, named after the cluster whose bytes per floating-point operation they reproduce."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from paradyse_megatron.bench.links import Links, unavailable
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import shipped

LOOPBACK, NODE, BETWEEN_NODES = "loopback", "like 8 GPUs of a DGX H100 on NVLink", "ten times slower, as between nodes"
_BYTES_PER_ELEMENT = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True)
class Level:
    """An interconnect.

    Attributes:
        name: what it is like.
        rate_mbit: of each rank, both ways; None for plain loopback.
    """

    name: str
    rate_mbit: float | None

    @contextmanager
    def links(self, num_ranks: int) -> Iterator[Links | None]:
        """Up while inside."""
        if self.rate_mbit is None:
            yield None
        else:
            with Links(num_ranks, self.rate_mbit) as links:
                yield links


INTERCONNECTS = {"loopback": LOOPBACK, "node": NODE, "between-nodes": BETWEEN_NODES}
"""Names on the command line."""


def levels(num_ranks: int, wanted: Sequence[str]) -> list[Level]:
    """Of `INTERCONNECTS`: plain loopback, as balanced as an NVLink node, and ten times slower.

    Where nothing can be emulated (no root), loopback alone.
    """
    if unavailable() is not None:
        return [Level(LOOPBACK, None)]
    rate = balanced_rate_mbit(Cluster.from_yaml(shipped("clusters", "dgx-h100")), measured_flops_per_s(num_ranks))
    rates = {"loopback": None, "node": rate, "between-nodes": rate / 10}
    return [Level(INTERCONNECTS[name], rates[name]) for name in wanted]


def balanced_rate_mbit(cluster: Cluster, rank_flops_per_s: float) -> float:
    """Mbit/s at which a rank in fp32 sends as many elements a floating-point operation as one of `cluster` in bf16."""
    flops = cluster.flops_per_ms("bf16") * 1000
    elements_per_flop = cluster.intra_node.bandwidth_bytes_per_s / _BYTES_PER_ELEMENT["bf16"] / flops
    return elements_per_flop * rank_flops_per_s * _BYTES_PER_ELEMENT["fp32"] * 8 / 1e6


def measured_flops_per_s(num_ranks: int, size: int = 512, repetitions: int = 20) -> float:
    """Of one of `num_ranks` ranks in large fp32 products: this process's rate, shared where ranks outnumber cores."""
    import os

    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    left = torch.from_numpy(np.ones((size, size), np.float32))
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        left @ left
        times.append(time.perf_counter() - begin)
    torch.set_num_threads(threads)
    return 2 * size**3 / sorted(times)[len(times) // 2] * min(1.0, (os.cpu_count() or 1) / num_ranks)
