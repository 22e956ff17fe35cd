"""What a figure must carry: machine, versions, command, date."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from datetime import date
from pathlib import Path
from typing import Any

_PACKAGES = ("paradyse-megatron", "torch", "megatron-core", "numpy")


def conditions() -> dict[str, Any]:
    """Keys `date`, `machine`, `versions`, `command` of a result file."""
    return {
        "date": date.today().isoformat(),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "load_at_start": round(os.getloadavg()[0], 1),
        },
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "command": " ".join(["paradyse", *sys.argv[1:]]),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
