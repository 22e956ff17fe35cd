"""Memory of the "device" is memory of this process: resident now, its high-water mark, and the limit it runs into."""

from __future__ import annotations

import ctypes
import logging
import resource
from collections.abc import Callable, Iterator
from typing import Any

import torch

from paradyse_megatron.cpu.replacements import Replacement, own

_logger = logging.getLogger(__name__)
KEEPING = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Environment in which a process keeps what tensors let go, in large pages, for the next ones.

By default glibc gives every tensor from 32 MiB back to the system, which makes its pages anew the next time: attention
that stores scores was seen to take 1.5 times as long at 4,096 tokens, and to follow no power of the length.
"""
EXACT = {
    "MALLOC_MMAP_THRESHOLD_": str(64 << 10),
    "MALLOC_MMAP_MAX_": str(64 << 10),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 10),
    "MALLOC_TOP_PAD_": str(128 << 10),
    "GLIBC_TUNABLES": "",
    "THP_MEM_ALLOC_ENABLE": "0",
}
"""Environment in which a process holds what its tensors hold, whatever else is set.

Otherwise it keeps much of what tensors leave behind: the resident set was seen to be 1.5 to 3 times what they needed.
Here each allocation from 64 KiB is a mapping of its own and goes back when it is freed, at the price of page faults:
layers with short sequences took up to 1.4 times as long.
"""
_RESET_PEAK = b"5"  # see clear_refs in proc(5)


def resident_bytes(device: Any = None) -> int:
    """Resident set of this process, now."""
    return int(_content("/proc/self/statm").split()[1]) * resource.getpagesize()


def peak_resident_bytes(device: Any = None) -> int:
    """The most that was resident since the process began or `reset_peak` was called."""
    return _field_bytes("/proc/self/status", "VmHWM")


def reset_peak(device: Any = None) -> None:
    """Let the high-water mark of the resident set begin anew."""
    try:
        with open("/proc/self/clear_refs", "wb", buffering=0) as file:
            file.write(_RESET_PEAK)
    except OSError as error:
        _warn_once("The peak of memory cannot be reset here (%s): it stays the highest since the process began.", error)


def write_to_new_tensors() -> None:
    """Have torch fill every tensor that it makes: what is allocated is resident then, as it is on a device.

    A buffer of attention scores that is only ever given to a product with beta = 0 would not be. For weighing only, as
    torch does so in its deterministic mode.
    """
    torch.use_deterministic_algorithms(True, warn_only=True)


def total_memory_bytes() -> int:
    """Memory of this machine, in bytes."""
    return memory_info()[1]


def memory_info(device: Any = None) -> tuple[int, int]:
    """(available, total) bytes: the machine's, or those of the address-space limit (`ulimit -v`) when that is less."""
    available = _field_bytes("/proc/meminfo", "MemAvailable")
    total = _field_bytes("/proc/meminfo", "MemTotal")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        available = min(available, max(0, limit - _field_bytes("/proc/self/status", "VmSize")))
        total = min(total, limit)
    return available, total


def memory_stats(device: Any = None) -> dict[str, int]:
    """The statistics that can be told; counts of allocations cannot, and are 0."""
    resident, peak = resident_bytes(), peak_resident_bytes()
    stats = dict.fromkeys(("allocation.all.current", "num_alloc_retries", "num_ooms"), 0)
    for kind in ("allocated_bytes", "reserved_bytes", "active_bytes"):
        stats |= {f"{kind}.all.current": resident, f"{kind}.all.peak": peak}
    return stats


def empty_cache() -> None:
    """Give what the C allocator holds, but nobody uses, back to the system."""
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def replacements() -> Iterator[Replacement]:
    """What stands for `torch.cuda`'s memory statistics."""
    functions: dict[str, Callable[..., Any]] = {
        "memory_allocated": resident_bytes,
        "memory_reserved": resident_bytes,
        "device_memory_used": resident_bytes,
        "max_memory_allocated": peak_resident_bytes,
        "max_memory_reserved": peak_resident_bytes,
        "reset_peak_memory_stats": reset_peak,
        "reset_max_memory_allocated": reset_peak,
        "mem_get_info": memory_info,
        "memory_stats": memory_stats,
        "empty_cache": empty_cache,
    }
    for name, function in functions.items():
        yield Replacement(torch.cuda, name, own(function, name))
    yield Replacement(torch.accelerator, "empty_cache", own(empty_cache, "empty_cache"))


def _field_bytes(path: str, name: str) -> int:
    _, found, rest = (b"\n" + _content(path)).partition(f"\n{name}:".encode())
    if not found:
        raise RuntimeError(f"{path} does not say {name}, which memory statistics on the CPU are read from.")
    return int(rest.split(maxsplit=1)[0]) * 1024


def _content(path: str) -> bytes:
    """Of a file that the system makes up; unbuffered, as this is asked for around each micro-batch."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


_warned: set[str] = set()


def _warn_once(message: str, *args: Any) -> None:
    if message not in _warned:
        _warned.add(message)
        _logger.warning(message, *args)
