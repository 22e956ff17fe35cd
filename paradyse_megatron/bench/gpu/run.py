"""All parts on this machine's GPU, one after the other."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from paradyse_megatron.bench.gpu import attention, direct, exactness, rotation, speed
from paradyse_megatron.bench.gpu.check import Check, Checks, gathered
from paradyse_megatron.comm import cuda, executors, nvrtc

_PACKAGES = ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-nccl-cu13")


def measure(seq_length: int) -> dict[str, Any]:
    """Checks, speeds and the GPU they are of. Raises ValueError where there is none, or kernels do not compile."""
    if not cuda.has_gpu():
        raise ValueError("There is no GPU here that torch can see, and nothing but a GPU can answer this.")
    executors.choose("cuda", on_cpu=False)
    torch.cuda.set_device(0)
    device = torch.device("cuda", 0)
    parts: dict[str, Checks] = {
        "kernels": partial(exactness.small, device),
        "kernels beyond 32 bits": partial(exactness.large, device),
        "direct stores": partial(direct.direct, device),
        "rotary embedding": partial(rotation.rotation, device),
        "attention": partial(attention.attention_with_log_sum_exp, device, torch.bfloat16),
        "strategies": partial(attention.strategies_of_one_rank, device),
    }
    return {"gpu": _gpu(device), "seq_length": seq_length} | report(parts, partial(speed.measure, device, seq_length))


def report(parts: dict[str, Checks], speeds: Callable[[], list[dict[str, Any]]]) -> dict[str, Any]:
    """Every part and the speeds, whatever becomes of the others, with the seconds each took."""
    checks: list[Check] = []
    seconds = {}
    for part, run in parts.items():
        begin = time.monotonic()
        checks += gathered(part, run)
        seconds[part] = round(time.monotonic() - begin, 1)
    table: list[dict[str, Any]] = []

    def measured() -> list[Check]:
        table.extend(speeds())
        return [Check("speed", "measured", bool(table), f"{len(table)} sides of conversions")]

    begin = time.monotonic()
    checks += gathered("speed", measured)
    seconds["speed"] = round(time.monotonic() - begin, 1)
    failed = [check for check in checks if not check.holds]
    return {
        "num_checks": len(checks),
        "num_failed": len(failed),
        "seconds": seconds,
        **(speed.summary(table) if table else {}),
        "checks": [asdict(check) for check in checks],
        "table": table,
    }


def _gpu(device: torch.device) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    architecture = cuda.architecture(0)
    return {
        "name": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "architecture": architecture,
        "cuda_of_torch": torch.version.cuda,
        "kernels": {name: asdict(usage) for name, usage in nvrtc.compiled(architecture).usage.items()},
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
