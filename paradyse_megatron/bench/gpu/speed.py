"""How fast conversions are on a device: kernels, torch's permutes, and a copy of the same bytes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paradyse_megatron.bench.conversions import MODELS
from paradyse_megatron.comm import cuda, permutes
from paradyse_megatron.layouts.conversion import Conversion, Layout, context_to_tokens, qkv_to_heads
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing
from paradyse_megatron.layouts.section import is_whole

DTYPE = torch.bfloat16


def measure(device: torch.device, seq_length: int, group_size: int = 8, repetitions: int = 20) -> list[dict[str, Any]]:
    """A row for each side of each conversion that moves anything: milliseconds (median) and GB/s, read plus written."""
    rows = []
    for model, (heads, groups, head_dim) in MODELS.items():
        sizes = AttentionSizes(HeadDealing(heads, groups, group_size), head_dim, seq_length // group_size, 1)
        conversions = {"qkv": qkv_to_heads(sizes), "context": context_to_tokens(sizes)}
        for name, conversion in conversions.items():
            for way, one in (("forward", conversion), ("backward", conversion.inverse)):
                for side, row in _sides(one, device, repetitions).items():
                    rows.append({"model": model, "group_size": group_size, "conversion": name, "way": way} | row)
                    rows[-1]["side"] = side
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Medians over the table."""
    return {
        "cuda_over_torch_speedup_median": round(statistics.median(r["torch_ms"] / r["cuda_ms"] for r in rows), 3),
        "cuda_fraction_of_copy_median": round(statistics.median(r["copy_ms"] / r["cuda_ms"] for r in rows), 3),
        "cuda_gb_per_s_median": round(statistics.median(r["cuda_gb_per_s"] for r in rows), 1),
    }


def _sides(conversion: Conversion, device: torch.device, repetitions: int) -> dict[str, dict[str, Any]]:
    source, target = conversion.source, conversion.target
    tensors = [torch.randn(shape, dtype=DTYPE, device=device) for shape in source.shapes]
    wire = torch.randn(target.blocks_per_peer(0).count(1), target.block_elements, dtype=DTYPE, device=device)
    sides = {}
    if not _stays(source):
        sides["pack"] = _row(wire, repetitions, device, lambda executor: executor.pack(tensors, source, 0))
    if not (target.is_view(0) or _stays(target)):
        sides["unpack"] = _row(wire, repetitions, device, lambda executor: executor.unpack(wire, target, 0))
    return sides


def _stays(layout: Layout) -> bool:
    """Whether nothing moves between contiguous tensors and the wire."""
    return is_whole(layout.sections(0, tuple(torch.empty(shape, device="meta").stride() for shape in layout.shapes)))


def _row(wire: Tensor, repetitions: int, device: torch.device, run: Callable[[Any], object]) -> dict[str, Any]:
    copied = torch.empty_like(wire)
    alternatives: dict[str, Callable[[], object]] = {
        "cuda": lambda: run(cuda),
        "torch": lambda: run(permutes),
        "copy": lambda: copied.copy_(wire),
    }
    times: dict[str, list[float]] = {name: [] for name in alternatives}
    for repetition in range(repetitions + 1):
        for name, alternative in alternatives.items():
            taken = milliseconds(alternative, device)
            if repetition > 0:  # the first warms up
                times[name].append(taken)
    medians = {f"{name}_ms": round(statistics.median(found), 5) for name, found in times.items()}
    speeds = {f"{name}_gb_per_s": round(2e-6 * wire.nbytes / medians[f"{name}_ms"], 1) for name in alternatives}
    return {"bytes_moved": wire.nbytes, **medians, **speeds}


def milliseconds(call: Callable[[], object], device: torch.device) -> float:
    """What one call takes; on a GPU between two events on its stream."""
    if device.type != "cuda":
        begin = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - begin)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last)
