"""What a figure must carry: machine, versions, command, date."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from datetime import date
from pathlib import Path
from typing import Any

from paradyse_megatron.integration.machine import processor

_PACKAGES = ("paradyse-megatron", "torch", "megatron-core", "numpy")


def conditions() -> dict[str, Any]:
    """Keys `date`, `machine`, `versions`, `command` of a result file."""
    return {
        "date": date.today().isoformat(),
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "load_at_start": round(os.getloadavg()[0], 1),
        },
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "command": " ".join(["paradyse", *map(_anywhere, sys.argv[1:])]),
    }


def _anywhere(argument: str) -> str:
    """Without the folders of this machine: the name alone where a path begins at its root."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
