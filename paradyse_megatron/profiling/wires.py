"""What collectives of this machine's ranks cost: latency and bandwidth of each kind, measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from paradyse_megatron.comm.ring import Hop
from paradyse_megatron.profiling.stopwatch import settle

SIZES = (4_096, 65_536, 1_048_576, 8_388_608)
REPETITIONS = 5


def measure_wires(group: dist.ProcessGroup) -> dict[str, dict[str, float]]:
    """By kind of collective, `latency_us` and `bytes_per_s` that a rank sends. Collective over the group; {} alone."""
    if group.size() == 1:
        return {}
    return {name: _measured(name, run, group) for name, run in _kinds(group).items()}


def _measured(name: str, run: Callable[[int], object], group: dist.ProcessGroup) -> dict[str, float]:
    return _line([(sent, _median_us(run, size, group)) for size, sent in _sizes(name, group)])


def _sizes(name: str, group: dist.ProcessGroup) -> list[tuple[int, int]]:
    """Bytes of the whole buffer, and those of it that a rank sends."""
    num_ranks = group.size()
    whole = [size // (4 * num_ranks) * 4 * num_ranks for size in SIZES]
    return [(size, size if name == "hop" else size * (num_ranks - 1) // num_ranks) for size in whole]


def _kinds(group: dist.ProcessGroup) -> dict[str, Callable[[int], object]]:
    def buffer(size: int) -> Tensor:
        return torch.zeros(size // 4, dtype=torch.float32, device="cuda")

    def share(size: int) -> Tensor:
        return buffer(size // group.size())

    return {
        "all_gather": lambda size: dist.all_gather_into_tensor(buffer(size), share(size), group),
        "reduce_scatter": lambda size: dist.reduce_scatter_tensor(share(size), buffer(size), group=group),
        "all_to_all": lambda size: dist.all_to_all_single(buffer(size), buffer(size), group=group),
        "hop": lambda size: Hop(buffer(size), group).wait(),
    }


def _median_us(run: Callable[[int], object], size: int, group: dist.ProcessGroup) -> float:
    times = []
    for _ in range(REPETITIONS + 1):
        settle(group)
        begin = time.perf_counter()
        run(size)
        torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - begin))
    return statistics.median(times[1:])


def _line(points: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Least squares, relative to each time, of latency + bytes / bandwidth; neither negative."""
    sent, microseconds = np.array(points, dtype=float).T
    terms = np.stack([np.ones_like(sent), sent]) / microseconds
    latency, slope = np.linalg.lstsq(terms.T, np.ones_like(sent), rcond=None)[0]
    if latency < 0:
        latency, slope = 0.0, float((terms[1] ** 2).sum() and terms[1].sum() / (terms[1] ** 2).sum())
    if slope <= 0:
        latency, slope = float(microseconds.min()), 1e-12
    return {"latency_us": float(latency), "bytes_per_s": float(1e6 / slope)}
