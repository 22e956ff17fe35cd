"""Choosing an executor in a rank's process: also those of GPUs, by their kernels' own source on the CPU."""

from __future__ import annotations

import os
from contextlib import ExitStack

from paradyse_megatron.comm import executors, windows
from tests.comm.emulated import COMPILER, FOLDER, kernels_on_cpu
from tests.comm.shared_memory import shared

launched: set[str] = set()
"""Kernels that ran since the last choice."""

_entered = ExitStack()
"""What is left when another executor is chosen."""


def choose(name: str) -> None:
    """As `executors.choose`; `cuda` and `symm` take CPU tensors, and workspaces are in shared memory."""
    _entered.close()
    launched.clear()
    if name not in ("cuda", "symm"):
        return executors.choose(name)
    kernels = _entered.enter_context(kernels_on_cpu())
    kernels.launched = launched
    windows.allocators["cpu"] = shared
    executors._current = executors._EXECUTORS[name]


def runnable() -> list[str]:
    """`torch`; `host` where it is built; those of GPUs where a test has built their kernels for its ranks."""
    built = executors.unavailable_reason("host") is None
    emulated = COMPILER is not None and FOLDER in os.environ
    return ["torch", *(["host"] if built else []), *(["cuda", "symm"] if emulated else [])]
