"""Workspaces of ranks on CPUs: files in memory that every rank of a group maps."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import weakref
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None


def shared(num_bytes: int, group: dist.ProcessGroup, device: torch.device) -> tuple[torch.Tensor, list[int]]:
    """As `windows.Allocate`."""
    descriptor, path = tempfile.mkstemp(prefix="paradyse-", dir=FOLDER)
    os.ftruncate(descriptor, num_bytes)
    os.close(descriptor)
    paths: list[str] = [""] * group.size()
    dist.all_gather_object(paths, path, group=group)
    views = [ctypes.c_char.from_buffer(_mapped(one, num_bytes)) for one in paths]
    dist.barrier(group)
    os.unlink(path)
    addresses = [ctypes.addressof(view) for view in views]
    whole = (ctypes.c_uint8 * num_bytes).from_address(addresses[group.rank()])
    memory = torch.frombuffer(whole, dtype=torch.uint8)
    weakref.finalize(memory, views.clear)
    return memory, addresses


def _mapped(path: str, num_bytes: int) -> mmap.mmap:
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), num_bytes)
