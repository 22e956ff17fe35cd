"""Whether the GPU kernels compile here, for each architecture, and what they take; no GPU is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from paradyse_megatron.comm.nvrtc import ARCHITECTURES, compiled

Report = dict[str, object]


def kernels(architectures: Sequence[str] = ARCHITECTURES) -> dict[str, Report]:
    """By architecture: `compiled`, the most `registers` of a thread, `spill_bytes` of all kernels, each in `kernels`.

    Where they do not compile, `reason` says why, and the numbers are None.
    """
    return {architecture: _report(architecture) for architecture in architectures}


def _report(architecture: str) -> Report:
    try:
        usage = compiled(architecture).usage
    except ValueError as error:
        return {"compiled": False, "registers": None, "spill_bytes": None, "kernels": {}, "reason": str(error)}
    return {
        "compiled": True,
        "registers": max(kernel.registers for kernel in usage.values()),
        "spill_bytes": sum(kernel.spill_bytes for kernel in usage.values()),
        "kernels": {name: asdict(kernel) for name, kernel in usage.items()},
        "reason": None,
    }
